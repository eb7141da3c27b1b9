package redislock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

// A user without the permission to track keys cannot watch, and no retry helps. Package holdfast
// then asks from time to time.
func TestTrackRefused(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{aclRule})
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "holdfast", Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	for what, conn := range map[string]redislock.Conn{
		"rueidis":  dialURL(t, "redis://holdfast:secret@"+server.Addr),
		"go-redis": goredisconn.New(client),
	} {
		b := redislock.New(conn, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := b.Watch(ctx, "", func(name string) { t.Errorf("%s: a hint: %q", what, name) })
		cancel()
		if !errors.Is(err, driver.ErrRefused) {
			t.Errorf("%s: %v; want ErrRefused", what, err)
		}
		_ = b.Close()
	}
}

// A watcher hears the names that begin with its prefix, and nothing that others publish where the
// server sends them.
func TestTrackedNames(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for what, conn := range map[string]redislock.Conn{
		"rueidis": dialRueidis(t, server.Addr), "go-redis": dialGoRedis(t, server.Addr),
	} {
		t.Run(what, func(t *testing.T) {
			b := redislock.New(conn, nil)
			t.Cleanup(func() { _ = b.Close() })
			s, err := b.Open(t.Context(), driver.SessionConfig{ID: "s", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			take := func(name string) {
				t.Helper()
				if _, err := s.Acquire(t.Context(), &driver.Request{ID: what + name, Name: name, Mode: driver.Exclusive, N: 1,
					Wait: true}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			hints, ended := make(chan string, 1000), make(chan error, 1)
			go func() { ended <- b.Watch(ctx, "p/", func(name string) { hints <- name }) }()
			until := func(want string, also ...string) {
				t.Helper()
				for {
					select {
					case name := <-hints:
						if name == want {
							return
						}
						if !slices.Contains(also, name) {
							t.Errorf("hint %q; want %q", name, want)
						}
					case <-time.After(30 * time.Second):
						t.Fatalf("no hint %q", want)
					}
				}
			}
			until("")
			raw := rawClient(t, server.Addr)
			for _, forged := range []string{"", "x", "hf:{00}:l:p/forged"} {
				if err := raw.Do(t.Context(), raw.B().Publish().Channel("__redis__:invalidate").Message(forged).Build()).
					Error(); err != nil {
					t.Fatal(err)
				}
			}
			take("outside")
			if err := raw.Do(t.Context(), raw.B().Set().Key("hf:{00}").Value("x").Build()).Error(); err != nil {
				t.Fatal(err)
			}
			const odd = "p/\x00odd {}:l: name"
			take(odd)
			until(odd)
			take("p/y")
			until("p/y", odd)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
