package redislock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

// The server has ended all idle connections, as its setting timeout makes it do. It accepts new
// ones, so no call fails, even if a pool has many ended connections.
func TestIdleConnectionsThatEnded(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct{ tls, rueidis bool }{
		"rueidis": {false, true}, "rueidis, TLS": {true, true}, "go-redis": {false, false}, "go-redis, TLS": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis
			if v.tls {
				server = testenv.RedisTLS
			}
			idleConnectionsThatEnded(t, server(t), v.rueidis)
		})
	}
}

func idleConnectionsThatEnded(t *testing.T, server *testenv.RedisServer, rueidis bool) {
	const connections = 40
	var conn redislock.Conn
	if rueidis {
		conn = dialURL(t, server.URL())
	} else {
		opt := &redis.Options{Addr: server.Addr, PoolSize: connections}
		if server.TLS != nil {
			opt.TLSConfig = server.TLS.Client(t)
		}
		client := redis.NewClient(opt)
		t.Cleanup(func() { _ = client.Close() })
		conn = goredisconn.New(client)
	}
	b := redislock.New(conn, nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: long})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(within(t, soon)) })
	ctx := within(t, soon)
	// The client does not repeat an exchange that has taken this long.
	const late = 400 * time.Millisecond
	for what, call := range map[string]func(*holdfast.Lease) error{
		"Release": (*holdfast.Lease).Release,
		"Break":   func(l *holdfast.Lease) error { return c.Break(ctx, l.Name(), l.Token(), "") },
		"Inspect": func(l *holdfast.Lease) error { _, err := c.Inspect(ctx, l.Name()); return err },
	} {
		for tries := 1; ; tries++ {
			var all sync.WaitGroup
			for range connections {
				all.Go(func() { _, _ = c.Inspect(ctx, "x") })
			}
			all.Wait()
			l, err := c.Mutex(newID()).Lock(ctx)
			if err != nil {
				t.Errorf("before %s: %v", what, err)
				break
			}
			server.Do("CLIENT KILL TYPE normal")
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			err = call(l)
			took := time.Since(began)
			_ = l.Release() // the next call does without it
			if err != nil && took >= late && tries < 10 {
				continue
			}
			if err != nil {
				t.Errorf("%s after %v: %v", what, took, err)
			}
			break
		}
	}
}
