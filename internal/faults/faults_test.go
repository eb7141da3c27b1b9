// Package faults does to every store's servers what happens to servers, and checks that the promises of
// docs/guarantees.md hold, or fail just as they say.
//
// A test is one fault, and the same for all stores; a store brings how it is harmed and healed. The scene is
// always this: one client holds a lock, another waits for it, and perhaps others come and go.
package faults

import (
	"context"
	"errors"
	"flag"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they wait for leases to run out most of the time
	goleak.VerifyTestMain(m)
}

const (
	// ttl is long enough that a busy machine does not cost leases.
	ttl = 8 * time.Second

	// lasting is how long a lease is watched that must not end: nothing but renewals brings it there.
	lasting = ttl + ttl/2

	// patience is how long a test waits for what has to come.
	patience = time.Minute
)

// client is a client of the store with connections of its own.
func (s *site) client() *holdfast.Client {
	s.t.Helper()
	c, _ := s.watched()
	return c
}

// watched is a client whose renewals are counted.
func (s *site) watched() (*holdfast.Client, *beats) {
	s.t.Helper()
	renewals := &beats{}
	b := s.backend()
	var c *holdfast.Client
	var err error
	defer func() {
		if c == nil {
			s.t.Logf("New: %v", err)
		}
	}()
	until(s.t, "a client is let in", func() bool {
		c, err = holdfast.New(limited(s.t), b, &holdfast.Config{TTL: ttl, Observer: &holdfast.Observer{Renewed: renewals.note}})
		if err != nil && !passing(err) {
			s.t.Fatal(err)
		}
		return err == nil
	})
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the store may be down
	})
	return c, renewals
}

func (s *site) lock(c *holdfast.Client, name string) *holdfast.Lease {
	s.t.Helper()
	var l *holdfast.Lease
	until(s.t, "it is locked", func() bool {
		var err error
		if l, err = c.Mutex(name).Lock(limited(s.t)); err != nil && !passing(err) { // a busy machine may be late to answer
			s.t.Fatalf("Lock(%q): %v", name, err)
		}
		return err == nil
	})
	return l
}

// passing reports whether err says that the store did not serve.
func passing(err error) bool {
	return errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUncertain)
}

// scene is a lock that one client holds and another waits for.
type scene struct {
	*site
	holder, waiter *holdfast.Client
	beats          *beats // the holder's renewals
	watcher        driver.Backend
	held           *holdfast.Lease
	next           <-chan *holdfast.Lease // the waiter's
	exclusive      bool                   // nobody may be granted the lock while held is trusted
}

const name = "the lock"

func (s *site) scene() *scene {
	s.t.Helper()
	c := &scene{site: s, waiter: s.client(), watcher: s.backend(), exclusive: true}
	c.holder, c.beats = s.watched()
	c.held = s.lock(c.holder, name)
	c.next = c.waits()
	return c
}

// waits lets the waiter wait for the lock, and returns when it stands in line. Outages that are longer than a
// wait lasts do not deter it.
func (c *scene) waits() <-chan *holdfast.Lease {
	c.t.Helper()
	ctx, granted := c.t.Context(), make(chan *holdfast.Lease, 1)
	held := c.held
	go func() {
		defer close(granted)
		for {
			l, err := c.waiter.Mutex(name).Lock(ctx)
			switch {
			case err == nil:
				// Had both of them been trusted at one time, the older would be now.
				if c.exclusive && held.Err() == nil {
					c.t.Errorf("token %d is granted while token %d is trusted", l.Token(), held.Token())
				}
				if l.Token() <= held.Token() {
					c.t.Errorf("token %d after %d", l.Token(), held.Token())
				}
				granted <- l
				return
			case ctx.Err() != nil || errors.Is(err, holdfast.ErrClosed): // the test has ended
				return
			case !passing(err) && !errors.Is(err, holdfast.ErrRefused):
				c.t.Errorf("Lock while the store does not serve: %v", err)
				return
			}
		}
	}()
	until(c.t, "the waiter stands in line", func() bool { return c.record().Waiting == 1 || len(granted) > 0 })
	return granted
}

func (c *scene) record() driver.Record { return c.recordOf(name) }

// recordOf asks until it is answered: a connection may be of a server that was started again.
func (c *scene) recordOf(name string) (r driver.Record) {
	c.t.Helper()
	until(c.t, "Inspect is answered", func() (ok bool) {
		var err error
		if r, err = c.watcher.Inspect(limited(c.t), name); err != nil && !passing(err) {
			c.t.Fatalf("Inspect: %v", err)
		}
		return err == nil
	})
	return r
}

// told waits until the holder has been told that its lease is over, and returns when that was.
func (c *scene) told() time.Time {
	c.t.Helper()
	select {
	case <-c.held.Done():
	case <-time.After(patience):
		c.t.Fatal("the holder is never told that its lease is over")
	}
	if err := c.held.Err(); !errors.Is(err, holdfast.ErrLost) {
		c.t.Errorf("the lease ended with %v; want ErrLost", err)
	}
	return time.Now()
}

// keeps checks that the holder is still trusted, and fails early if it is told otherwise until then.
func (c *scene) keeps(end time.Time) {
	c.t.Helper()
	select {
	case <-c.held.Done():
		c.t.Fatalf("the lease is lost: %v", c.held.Err())
	case l := <-c.next:
		c.t.Fatalf("token %d is granted beside token %d", l.Token(), c.held.Token())
	case <-time.After(time.Until(end)):
	}
}

// served waits until the waiter has the lock.
func (c *scene) served() *holdfast.Lease {
	c.t.Helper()
	select {
	case l, ok := <-c.next:
		if !ok {
			c.t.Fatal("the waiter has given up")
		}
		return l
	case <-time.After(patience):
		c.t.Fatal("the waiter is never served")
	}
	return nil
}

// passesOn releases the lock, which the waiter must get, and releases as well.
func (c *scene) passesOn() {
	c.t.Helper()
	c.release(c.held)
	c.release(c.served())
}

// release ends a lease that the store must not have ended. What it could not answer in time is repeated in the
// background; and a lease that was just granted after an outage may run out on a busy machine.
func (c *scene) release(l *holdfast.Lease) {
	c.t.Helper()
	var e *holdfast.Error
	err := l.Release()
	expired := errors.As(err, &e) && e.Reason == holdfast.ReasonExpired
	if err != nil && !passing(err) && !expired {
		c.t.Errorf("Release of token %d: %v", l.Token(), err)
	}
}

// beats are a client's renewals that were answered: when they were sent.
type beats struct {
	mu   sync.Mutex
	sent []time.Time
}

func (b *beats) note(n int, took time.Duration, err error) {
	if err != nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, time.Now().Add(-took))
}

// since is how many were sent after a time.
func (b *beats) since(t time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sent := range b.sent {
		if sent.After(t) {
			n++
		}
	}
	return n
}

// toldByRenewal checks that a lease that the store gave away at a time ends with its client's first renewal that is answered after that, or by
// the client's clock before.
func toldByRenewal(t *testing.T, l *holdfast.Lease, b *beats, gone time.Time) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(patience):
		t.Errorf("the holder of token %d is never told that it lost the lock", l.Token())
	}
	var e *holdfast.Error
	if err := l.Err(); !errors.As(err, &e) || !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the lease ended with %v; want ErrLost", err)
	} else if n := b.since(gone); n > 1 || e.Reason != holdfast.ReasonRevoked && e.Reason != holdfast.ReasonForgotten && e.Reason != holdfast.ReasonExpired {
		t.Errorf("after %d renewals that were answered: %v; want it revoked by the first, or expired", n, err)
	}
}

// fails checks that a client that wants a lock that is free is refused it for a reason that it can test for, and not kept waiting.
func (c *scene) fails(client *holdfast.Client, name string) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(limited(c.t), ttl)
	defer cancel()
	start := time.Now()
	_, err := client.Mutex(name).TryLock(ctx)
	if err == nil {
		c.t.Errorf("TryLock(%q) succeeded", name)
	} else if !passing(err) && !errors.Is(err, holdfast.ErrRefused) && !errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("TryLock(%q): %v; want ErrUnavailable, ErrUncertain or ErrRefused", name, err)
	}
	if d := time.Since(start); d > ttl+patience/2 {
		c.t.Errorf("TryLock(%q) took %v", name, d)
	}
	return err
}

// again waits until a lock is granted, and returns how long that took.
func (c *scene) again(client *holdfast.Client, name string) (*holdfast.Lease, time.Duration) {
	c.t.Helper()
	start := time.Now()
	for {
		l, err := client.Mutex(name).TryLock(limited(c.t))
		switch {
		case err == nil:
			return l, time.Since(start)
		case !passing(err) && !errors.Is(err, holdfast.ErrRefused) && !errors.Is(err, holdfast.ErrHeld): // by what is being taken back
			c.t.Fatalf("TryLock(%q): %v", name, err)
		case time.Since(start) > patience:
			c.t.Fatalf("the store does not serve again: %v", err)
		}
	}
}
