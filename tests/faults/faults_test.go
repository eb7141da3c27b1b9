// Package faults causes common server faults on every store. It checks that the promises of
// docs/guarantees.md hold, or fail exactly as documented.
//
// A test is one fault, and the same for all stores; a store contributes how to cause and end the
// fault. The setting is always the same: one client holds a lock, another waits for it, and others
// may come and go.
package faults

import (
	"context"
	"errors"
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they mostly wait for leases to expire
	goleak.VerifyTestMain(m)
}

const (
	// ttl is long enough that a busy machine loses no leases.
	ttl = 8 * time.Second

	// watchTime is how long a lease that must not end is watched: only renewals make it last that
	// long.
	watchTime = ttl + ttl/2

	// limit is how long a test waits for an event that must happen.
	limit = time.Minute
)

// client returns a client of the store with connections of its own.
func (s *site) client() *holdfast.Client {
	s.t.Helper()
	c, _ := s.clientWithRenewals()
	return c
}

// clientWithRenewals returns a client, and its recorded renewals.
func (s *site) clientWithRenewals() (*holdfast.Client, *renewals) {
	s.t.Helper()
	renewals := &renewals{}
	b := s.backend()
	var c *holdfast.Client
	var err error
	defer func() {
		if c == nil {
			s.t.Logf("New: %v", err)
		}
	}()
	until(s.t, "a client is accepted", func() bool {
		c, err = holdfast.New(limited(s.t), b, &holdfast.Config{TTL: ttl,
			Observer: &holdfast.Observer{Renewed: renewals.note}})
		if err != nil && !transient(err) {
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
	until(s.t, "the name is locked", func() bool {
		var err error
		// The answer may be late on a busy machine.
		if l, err = c.Mutex(name).Lock(limited(s.t)); err != nil && !transient(err) {
			s.t.Fatalf("Lock(%q): %v", name, err)
		}
		return err == nil
	})
	return l
}

// transient reports whether err means that the store did not serve.
func transient(err error) bool {
	return errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUncertain)
}

// fixture is a lock with one holder and one waiter.
type fixture struct {
	*site
	holder, waiter *holdfast.Client
	renewals       *renewals // the holder's renewals
	watcher        driver.Backend
	held           *holdfast.Lease
	next           <-chan *holdfast.Lease // gets the waiter's lease
	exclusive      atomic.Bool            // nobody else may get the lock while held is trusted
}

const name = "the lock"

func (s *site) newFixture() *fixture {
	s.t.Helper()
	c := &fixture{site: s, waiter: s.client(), watcher: s.backend()}
	c.exclusive.Store(true)
	c.holder, c.renewals = s.clientWithRenewals()
	c.held = s.lock(c.holder, name)
	c.next = c.startWaiter()
	return c
}

// startWaiter starts a wait for the lock, and returns when the waiter is in the queue. The waiter
// repeats a wait that fails in an outage.
func (c *fixture) startWaiter() <-chan *holdfast.Lease {
	c.t.Helper()
	ctx, granted := c.t.Context(), make(chan *holdfast.Lease, 1)
	held := c.held
	go func() {
		defer close(granted)
		for {
			l, err := c.waiter.Mutex(name).Lock(ctx)
			switch {
			case err == nil:
				// If both were trusted at one time, the older one would be trusted now.
				if c.exclusive.Load() && held.Err() == nil {
					c.t.Errorf("token %d is granted while token %d is trusted", l.Token(), held.Token())
				}
				if l.Token() <= held.Token() {
					c.t.Errorf("token %d after %d", l.Token(), held.Token())
				}
				granted <- l
				return
			case ctx.Err() != nil || errors.Is(err, holdfast.ErrClosed): // the test has ended
				return
			case !transient(err) && !errors.Is(err, holdfast.ErrRefused):
				c.t.Errorf("Lock while the store does not serve: %v", err)
				return
			}
		}
	}()
	until(c.t, "the waiter is in the queue", func() bool { return c.record().Waiting == 1 || len(granted) > 0 })
	return granted
}

func (c *fixture) record() driver.Record { return c.recordOf(name) }

// recordOf repeats Inspect until the store answers: a connection may be that of a restarted server.
func (c *fixture) recordOf(name string) (r driver.Record) {
	c.t.Helper()
	until(c.t, "Inspect is answered", func() (ok bool) {
		var err error
		if r, err = c.watcher.Inspect(limited(c.t), name); err != nil && !transient(err) {
			c.t.Fatalf("Inspect: %v", err)
		}
		return err == nil
	})
	return r
}

// waitLost waits until the holder learns that its lease has ended, and returns when that was.
func (c *fixture) waitLost() time.Time {
	c.t.Helper()
	select {
	case <-c.held.Done():
	case <-time.After(limit):
		c.t.Fatal("the holder does not learn that its lease has ended")
	}
	if err := c.held.Err(); !errors.Is(err, holdfast.ErrLost) {
		c.t.Errorf("the lease ended with %v; want ErrLost", err)
	}
	return time.Now()
}

// staysTrusted checks that the holder trusts its lease until end, and fails as soon as it does not.
func (c *fixture) staysTrusted(end time.Time) {
	c.t.Helper()
	select {
	case <-c.held.Done():
		c.t.Fatalf("the lease is lost: %v", c.held.Err())
	case l := <-c.next:
		c.t.Fatalf("token %d is granted during the hold of token %d", l.Token(), c.held.Token())
	case <-time.After(time.Until(end)):
	}
}

// waitGranted waits until the waiter has the lock.
func (c *fixture) waitGranted() *holdfast.Lease {
	c.t.Helper()
	select {
	case l, ok := <-c.next:
		if !ok {
			c.t.Fatal("the waiter has given up")
		}
		return l
	case <-time.After(limit):
		c.t.Fatal("the waiter does not get the lock")
	}
	return nil
}

// handOver releases the lock, which the waiter must get and then releases, too.
func (c *fixture) handOver() {
	c.t.Helper()
	c.release(c.held)
	c.release(c.waitGranted())
}

// release ends a lease that the store must not have ended. A release without an answer is repeated
// in the background. A lease granted just after an outage may expire on a busy machine.
func (c *fixture) release(l *holdfast.Lease) {
	c.t.Helper()
	var e *holdfast.Error
	err := l.Release()
	expired := errors.As(err, &e) && (e.Reason == holdfast.ReasonExpired || e.Reason == holdfast.ReasonUnreachable)
	if err != nil && !transient(err) && !expired {
		c.t.Errorf("Release of token %d: %v", l.Token(), err)
	}
}

// renewals records when the answered renewals of a client were sent.
type renewals struct {
	mu   sync.Mutex
	sent []time.Time
}

func (b *renewals) note(n int, took time.Duration, err error) {
	if err != nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, time.Now().Add(-took))
}

// since returns how many were sent after t.
func (b *renewals) since(t time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sent := range b.sent {
		if sent.After(t) {
			n++
		}
	}
	return n
}

// lostByRenewal checks the end of a lease whose lock the store granted again at time gone. It must
// end with its client's first answered renewal after that, or earlier by the client's clock.
func lostByRenewal(t *testing.T, l *holdfast.Lease, b *renewals, gone time.Time) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(limit):
		t.Errorf("the holder of token %d does not learn that it lost the lock", l.Token())
	}
	var e *holdfast.Error
	if err := l.Err(); !errors.As(err, &e) || !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the lease ended with %v; want ErrLost", err)
	} else if n := b.since(gone); n > 1 || !slices.Contains(endings, e.Reason) {
		t.Errorf("after %d answered renewals: %v; want it ended by the first, or not renewed in time", n, err)
	}
}

// endings are the reasons for which a server's fault may end a lease.
var endings = []holdfast.Reason{holdfast.ReasonEnded, holdfast.ReasonForgotten, holdfast.ReasonEvicted,
	holdfast.ReasonFlushed, holdfast.ReasonRestarted, holdfast.ReasonDeleted, holdfast.ReasonExpired,
	holdfast.ReasonUnreachable}

// fails checks that a client that requests a free lock gets an error that it can test for, and gets
// it soon.
func (c *fixture) fails(client *holdfast.Client, name string) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(limited(c.t), ttl)
	defer cancel()
	start := time.Now()
	_, err := client.Mutex(name).TryLock(ctx)
	if err == nil {
		c.t.Errorf("TryLock(%q) succeeded", name)
	} else if !transient(err) && !errors.Is(err, holdfast.ErrRefused) && !errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("TryLock(%q): %v; want ErrUnavailable, ErrUncertain or ErrRefused", name, err)
	}
	if d := time.Since(start); d > ttl+limit/2 {
		c.t.Errorf("TryLock(%q) took %v", name, d)
	}
	return err
}

// lockAgain waits until a lock is granted, and returns how long that took.
func (c *fixture) lockAgain(client *holdfast.Client, name string) (*holdfast.Lease, time.Duration) {
	c.t.Helper()
	start := time.Now()
	for {
		l, err := client.Mutex(name).TryLock(limited(c.t))
		switch {
		case err == nil:
			return l, time.Since(start)
		// by a cancelled request
		case !transient(err) && !errors.Is(err, holdfast.ErrRefused) && !errors.Is(err, holdfast.ErrHeld):
			c.t.Fatalf("TryLock(%q): %v", name, err)
		case time.Since(start) > limit:
			c.t.Fatalf("the store does not serve again: %v", err)
		}
	}
}
