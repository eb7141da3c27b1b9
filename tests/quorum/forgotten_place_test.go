package quorum_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestForgottenPlace: a server has lost its data, and with them a place in the queue. When it votes again,
// another server fails. The waiter joins the first one's queue again, and gets the lock from a majority.
func TestForgottenPlace(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	g := start(t, 3, ttl+time.Second)
	a, b := open(t, g.backend(g.addrs()), "a", ttl), open(t, g.backend(g.addrs()), "b", ttl)
	h := get(t, a, try("x", "a-1"))
	r := try("x", "b-1")
	r.Wait = true
	reply, err := b.Acquire(within(t), r)
	if err != nil || reply.Wake == nil {
		t.Fatalf("Acquire: %+v, %v; want a place", reply, err)
	}
	holder, waiter := renewals(t, a, h), func() { _, _ = b.Renew(within(t), []driver.Hold{{Name: "x", ID: r.ID}}) }
	for i := range g.servers {
		g.shows(t, i, "x", "a waiter", func(r driver.Record) bool { return r.Waiting == 1 }, func() { holder(); waiter() })
	}
	g.servers[0].Restart(false)
	restarted := time.Now()
	g.shows(t, 0, "x", "the holder", func(r driver.Record) bool { return len(r.Holders) == 1 }, func() {
		holder()
		// Until shortly before the server votes again. The next renewal comes when another server has failed.
		if time.Since(restarted) < ttl-time.Second {
			waiter()
		}
	})
	holder()
	g.servers[2].Kill()
	waiter()
	if err := a.Release(within(t), h, 0); err != nil && !passing(err) {
		t.Fatalf("Release: %v", err)
	}
	for end := time.Now().Add(4 * ttl); ; {
		select {
		case token := <-reply.Wake:
			if token != 0 {
				return
			}
		case <-time.After(ttl / 10):
		}
		changes, err := b.Renew(within(t), []driver.Hold{{Name: "x", ID: r.ID}})
		switch {
		case len(changes) == 1 && changes[0].State == driver.Granted:
			return
		case len(changes) == 1 && changes[0].State == driver.Gone:
			if reply, err = b.Acquire(within(t), r); reply.Token != 0 {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not granted by two servers of three: %+v, %v", changes, err)
		}
	}
}
