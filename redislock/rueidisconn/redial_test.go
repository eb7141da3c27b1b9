package rueidisconn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestBystanders: a single server has become a replica, and refuses requests of many callers at
// once. Each of them gets that error: when the client drops connections for one caller, the calls
// of the others do not break.
func TestBystanders(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	conn, err := rueidisconn.Dial(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	server.Do("REPLICAOF 127.0.0.1 1")
	script := &redislock.Script{
		Text: "return redis.call('INCR', KEYS[1])", SHA1: "61636018f4e6b5817b89791bbed242f93fa089e3",
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	calls := []redislock.Call{{Script: script, Keys: []string{"k"}}}
	hows := []func() error{
		func() error { _, err := conn.Run(ctx, script, []string{"k"}, nil); return err },
		func() error { return conn.RunAll(ctx, calls)[0].Err },
		func() error {
			all, _, _ := conn.RunWait(ctx, calls, 0, time.Millisecond)
			return all[0].Err
		},
	}
	const callers = 48
	const lastAnswers = time.Second // of the package: an exchange without an answer for so long is given up
	var all sync.WaitGroup
	var refused, givenUp atomic.Int64
	began := time.Now()
	for i := range callers {
		all.Go(func() {
			for time.Since(began) < 2500*time.Millisecond { // connections are dropped once a second
				called := time.Now()
				err := hows[i%len(hows)]()
				if time.Since(called) >= lastAnswers {
					givenUp.Add(1)
					continue
				}
				if !errors.Is(err, driver.ErrRefused) {
					t.Errorf("way %d after %v: %v; want ErrRefused", i%len(hows), time.Since(began), err)
					return
				}
				refused.Add(1)
			}
		})
	}
	all.Wait()
	t.Logf("%d refusals, %d given up", refused.Load(), givenUp.Load())
	if refused.Load() < callers || givenUp.Load() > callers {
		t.Error("the others are cut off when connections are dropped")
	}
}
