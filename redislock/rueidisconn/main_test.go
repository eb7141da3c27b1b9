package rueidisconn_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

func TestMain(m *testing.M) { os.Exit(testenv.RunShared(m)) }

var (
	one   = testenv.Shared(func(t testing.TB) *testenv.RedisServer { return testenv.Redis(t) })
	three = testenv.Shared(func(t testing.TB) (all [3]*testenv.RedisServer) {
		for i := range all {
			all[i] = testenv.Redis(t)
		}
		return all
	})
)

// redisURL and the other functions are for examples.
func redisURL() string { return testenv.ForExample(one).URL() }

// threeServers returns servers that have answered in time: new ones may not on a busy machine, and
// examples do not ask again.
func threeServers() (addrs []string) {
	var servers []quorum.Server
	for _, s := range testenv.ForExample(three) {
		addrs = append(addrs, s.Addr)
		servers = append(servers, quorum.Server{Name: s.Addr, Dial: func(ctx context.Context) (redislock.Conn, error) {
			return rueidisconn.DialContext(ctx, "redis://"+s.Addr, nil)
		}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	use := func() error {
		store := quorum.New(servers, nil)
		err := store.Declare(ctx)
		if err == nil {
			var c *holdfast.Client
			if c, err = holdfast.New(ctx, store, nil); err == nil {
				err = c.Close(ctx)
			}
		}
		return errors.Join(err, store.Close())
	}
	for err := use(); err != nil; err = use() {
		if ctx.Err() != nil {
			panic(err)
		}
		time.Sleep(5 * time.Millisecond) // no event reports when the machine is less busy
	}
	return addrs
}

func failOne() { testenv.ForExample(three)[2].Kill() }
