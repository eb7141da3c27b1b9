package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestClientRepeats: the client sends a request twice, and the first copy arrives after the lock of
// the second was released. The lock then has no holder, and is free long before a TTL has passed.
func TestClientRepeats(t *testing.T) {
	t.Parallel()
	const ttl, soon = time.Minute, 40 * time.Second
	server := testenv.Redis(t)
	_, b := session(t, server.URL(), ttl)
	for name, opt := range map[string]redis.Options{
		"plain": {ReadTimeout: 500 * time.Millisecond}, "obedient": {ReadTimeout: 500 * time.Millisecond,
			ContextTimeoutEnabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testenv.Proxy(t, server.Addr)
			opt.Addr = proxy.Addr
			conn := viaGoRedis(t, redis.NewClient(&opt))
			c, err := holdfast.New(t.Context(), redislock.New(conn, nil), &holdfast.Config{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			take := func(name string) {
				l, err := c.Mutex(name).Lock(within(t, ttl))
				if err == nil {
					err = l.Release()
				}
				// A release without an answer within 500 ms is repeated in the background.
				if err != nil && !(l != nil && errors.Is(err, holdfast.ErrUncertain)) {
					t.Fatal(err)
				}
			}
			take("first/" + name)
			deliver := proxy.Hold()
			take(name)
			released := time.Now()
			deliver()
			for time.Since(released) < soon {
				r, err := b.Inspect(within(t, 5*time.Second), name)
				if err == nil && r.Kind == driver.Unused && time.Since(released) > time.Second {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Errorf("the lock still stands %v after its release", soon)
		})
	}
}
