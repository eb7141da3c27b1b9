package rueidisconn_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestCloseWhileLeaving: a single server has become a replica, and its address no longer answers,
// not even with a refusal. Close does not take a time limit for each former connection.
func TestCloseWhileLeaving(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	var gone atomic.Bool
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if gone.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
	conn, err := rueidisconn.DialContext(t.Context(), server.URL(), dial)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	script := &redislock.Script{
		Text: "return redis.call('INCR', KEYS[1])", SHA1: "61636018f4e6b5817b89791bbed242f93fa089e3",
	}
	const sessions = 10
	for i := range sessions {
		if _, err := conn.Subscribe(ctx, "hf:s:"+string(rune('a'+i)), func(string) {}, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := conn.RunWait(ctx, []redislock.Call{{Script: script, Keys: []string{"k"}}}, 0,
		time.Millisecond); err != nil {
		t.Fatal(err)
	}
	server.Do("REPLICAOF 127.0.0.1 1")
	gone.Store(true)
	if _, err := conn.Run(ctx, script, []string{"k"}, nil); err == nil {
		t.Fatal("a replica has written")
	}
	time.Sleep(1500 * time.Millisecond)
	began := time.Now()
	_ = conn.Close()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("Close took %v", took)
	}
}
