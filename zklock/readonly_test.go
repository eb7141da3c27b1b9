package zklock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

// Two of three servers stop. The third continues in read-only mode, in which it answers with its
// last state. It grants nothing, and shows no holders.
func TestReadOnlyMode(t *testing.T) {
	t.Parallel()
	e := testenv.ZooKeeperEnsemble(t, 3, "-Dreadonlymode.enabled=true", longSessions)
	const ttl = 3 * time.Minute // two servers start within it
	holder, waiter := newPeerFor(t, on(e.Addrs()...), ttl), newPeerFor(t, on(e.Addrs()...), ttl)
	h := holder.get(holder.req("x"))
	w := waiter.req("x")
	reply := waiter.refused(w)
	for _, z := range e.Servers[1:] {
		z.Kill()
	}
	until(t, "the third server is read-only", func() bool {
		reply, err := e.Servers[0].Word("srvr")
		return err == nil && strings.Contains(reply, "Mode: read-only")
	})
	asks := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := call(ctx); !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("%s at a read-only server: %v; want ErrUnavailable or ErrUncertain", what, err)
		}
	}
	asks("Renew", func(ctx context.Context) error { _, err := holder.Renew(ctx, []driver.Hold{h}); return err })
	asks("Acquire", func(ctx context.Context) error { _, err := waiter.Acquire(ctx, waiter.req("free")); return err })
	asks("Release", func(ctx context.Context) error { return holder.Release(ctx, h, 0) })
	fresh := backend(t, zklock.Config{Servers: e.Addrs()[:1]})
	asks("Open", func(ctx context.Context) error {
		_, err := fresh.Open(ctx, driver.SessionConfig{ID: "fresh", TTL: time.Minute})
		return err
	})
	asks("Inspect", func(ctx context.Context) error { _, err := fresh.Inspect(ctx, "x"); return err })
	select {
	case token := <-reply.Wake:
		if token != 0 {
			t.Fatal("granted by a read-only server: ", token)
		}
	default:
	}
	for _, z := range e.Servers[1:] {
		z.Start()
	}
	until(t, "the lock is released", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := holder.Release(ctx, h, 0)
		// An unanswered release may have been carried out.
		return err == nil || errors.Is(err, driver.ErrGone)
	})
	var next driver.Reply
	until(t, "the waiter asks again", func() (ok bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var err error
		next, err = waiter.Acquire(ctx, w)
		return err == nil
	})
	waiter.release(waiter.woken(w, next))
}
