package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// watching are the checks of holdfast.Client.Watch, and of driver.Watcher.
var watching = []check{
	{"R13", "watch", "each change of a name is reported as it is on record, at once if the store reports changes",
		func(e *env) {
			a, b := e.client(nil), e.client(nil)
			first := e.lock(a, "first")
			w := e.watch(e.conn(), e.watchTTL())
			w.until("the first name", func(ev *holdfast.Event) bool { return ev.Initial && granted(ev, first.Token()) })
			w.until("all names", func(ev *holdfast.Event) bool { return ev.Type == holdfast.EventReady })

			x := e.lock(a, "x")
			w.until("a grant", func(ev *holdfast.Event) bool { return granted(ev, x.Token()) })
			var next *holdfast.Lease
			got := make(chan error, 1)
			go func() {
				var err error
				next, err = b.Mutex(e.name("x")).Lock(e.ctx)
				got <- err
			}()
			w.until("a waiter", func(ev *holdfast.Event) bool { return ev.Waiting == 1 })
			e.end(x)
			select {
			case err := <-got:
				if err != nil {
					e.Fatalf("Lock: %v", err)
				}
			case <-time.After(patience):
				e.Fatal("a waiter is not served")
			}
			w.until("a hand-over", func(ev *holdfast.Event) bool { return granted(ev, next.Token()) })
			if err := a.Break(e.ctx, e.name("x"), next.Token(), ""); err != nil {
				e.Fatal(err)
			}
			w.until("a break", func(ev *holdfast.Event) bool { return ev.Type == holdfast.EventFree && ended(ev, next.Token()) })
			e.end(first)
			w.until("a release", func(ev *holdfast.Event) bool {
				return ev.Type == holdfast.EventFree && ended(ev, first.Token())
			})
			if e.healthy().Kinds().Shared {
				e.watchReaders(w, a)
			}
			if !e.locksOnly() {
				e.watchCounts(w, a)
			}
		}},
	{"R11", "watch cut off", "a watcher that is cut off reports one error, and then what has changed", func(e *env) {
		e.useExpiry()
		conn, a := e.conn(), e.client(nil)
		w := e.watch(conn, e.h.TTL)
		x := e.lock(a, "x")
		w.errorsAllowed = true // a slow machine is an outage of its own
		w.until("a grant", func(ev *holdfast.Event) bool { return granted(ev, x.Token()) })
		w.errorsAllowed = false
		heal := conn.Cut()
		defer heal()
		w.fails()
		e.end(x)
		again, y := e.lock(a, "x"), e.lock(a, "y")
		time.Sleep(e.h.TTL)
		heal()
		var seen []uint64
		w.until("what was done during the cut", func(ev *holdfast.Event) bool {
			for _, h := range ev.Granted {
				seen = append(seen, h.Token)
			}
			return len(seen) == 2
		})
		if !slices.Contains(seen, again.Token()) || !slices.Contains(seen, y.Token()) {
			e.Errorf("after the cut tokens %d were reported; want %d and %d", seen, again.Token(), y.Token())
		}
		w.errorsAllowed = true // another outage
		e.end(y)
		w.until("a release", func(ev *holdfast.Event) bool { return ended(ev, y.Token()) })
	}},
	{"R11", "watch lost hints", "a watcher whose connections die silently, or that missed a hint, finds out by itself",
		func(e *env) {
			e.useExpiry()
			conn, a := e.conn(), e.client(nil)
			w := e.watch(conn, e.h.TTL)
			w.errorsAllowed = true // the connections die, and the machine may be slow
			w.until("all names", func(ev *holdfast.Event) bool { return ev.Type == holdfast.EventReady })
			conn.Forget()
			x := e.lock(a, "x")
			w.until("a grant", func(ev *holdfast.Event) bool { return granted(ev, x.Token()) })
			e.end(x)
			w.until("a release", func(ev *holdfast.Event) bool { return ended(ev, x.Token()) })
		}},
}

func (e *env) watchReaders(w *watcher, a *holdfast.Client) {
	e.Helper()
	rw := a.RWMutex(e.name("rw"))
	var readers []*holdfast.Lease
	for range 2 {
		l, err := rw.RLock(e.ctx)
		if err != nil {
			e.Fatal(err)
		}
		readers = append(readers, l)
		w.until("a reader", func(ev *holdfast.Event) bool { return granted(ev, l.Token()) })
	}
	e.end(readers[0])
	w.until("the end of a reader", func(ev *holdfast.Event) bool {
		return ev.Type == holdfast.EventEnded && ended(ev, readers[0].Token()) && len(ev.Holders) == 1
	})
	ticket, err := readers[1].Ticket()
	if err != nil {
		e.Fatal(err)
	}
	if _, err := a.Resume(e.ctx, ticket); err != nil {
		e.Fatal(err)
	}
	w.until("a reader's grant adopted", func(ev *holdfast.Event) bool {
		return ev.Type == holdfast.EventChanged && len(ev.Holders) == 1 && has(ev.Holders, readers[1].Token())
	})
}

func (e *env) watchCounts(w *watcher, a *holdfast.Client) {
	e.Helper()
	s := a.Semaphore(e.name("s"), 3)
	var permits []*holdfast.Lease
	for n := range 2 {
		l, err := s.Acquire(e.ctx, n+1)
		if err != nil {
			e.Fatal(err)
		}
		permits = append(permits, l)
		w.until("permits", func(ev *holdfast.Event) bool { return granted(ev, l.Token()) && len(ev.Holders) == n+1 })
	}
	if err := a.SetLimit(e.ctx, e.name("s"), 4); err != nil {
		e.Fatal(err)
	}
	w.until("a limit", func(ev *holdfast.Event) bool { return ev.Limit == 4 })
	if err := permits[1].ReleasePermits(1); err != nil {
		e.Fatal(err)
	}
	w.until("a permit given back", func(ev *holdfast.Event) bool {
		return ev.Type == holdfast.EventChanged && len(ev.Holders) == 2 && ev.Holders[1].Permits == 1
	})
	e.end(permits[0])
	w.until("the end of permits", func(ev *holdfast.Event) bool { return ended(ev, permits[0].Token()) })

	latch := a.Latch(e.name("l"))
	if _, err := latch.Set(e.ctx, 2); err != nil {
		e.Fatal(err)
	}
	w.until("a latch", func(ev *holdfast.Event) bool { return ev.Type == holdfast.EventCount && ev.Count == 2 })
	if _, err := latch.CountDown(e.ctx, "c"); err != nil {
		e.Fatal(err)
	}
	w.until("a count", func(ev *holdfast.Event) bool { return ev.Type == holdfast.EventCount && ev.Count == 1 })
	if err := latch.Remove(e.ctx); err != nil {
		e.Fatal(err)
	}
	w.until("a removal", func(ev *holdfast.Event) bool { return ev.Type == holdfast.EventFree && ev.Name == e.name("l") })
}

// watchTTL returns the TTL of a watcher that must hear of changes by hints, or of one that polls.
func (e *env) watchTTL() time.Duration {
	if e.h.Polled != "" {
		return e.h.TTL
	}
	return e.ttl // so long that no look comes in time
}

func (e *env) end(l *holdfast.Lease) {
	e.Helper()
	if err := l.Release(); err != nil {
		e.Fatalf("Release: %v", err)
	}
}

func granted(ev *holdfast.Event, token uint64) bool {
	return has(ev.Granted, token) && has(ev.Holders, token)
}

func ended(ev *holdfast.Event, token uint64) bool {
	return has(ev.Ended, token) && !has(ev.Holders, token)
}

func has(list []holdfast.Holder, token uint64) bool {
	return slices.ContainsFunc(list, func(h holdfast.Holder) bool { return h.Token == token })
}

// watcher is a Watch of the names of one check.
type watcher struct {
	e      *env
	events chan watched

	// errorsAllowed: the watcher may report that the store does not answer, and goes on.
	errorsAllowed bool
}

type watched struct {
	event holdfast.Event
	err   error
}

// watch watches the names of the check through conn.
func (e *env) watch(conn Conn, ttl time.Duration) *watcher {
	e.Helper()
	c := e.clientOn(conn, &holdfast.Config{TTL: ttl})
	ctx, cancel := context.WithCancel(e.ctx)
	// A call has a third of the TTL. Where a watcher polls, that is less than a busy machine needs at
	// times.
	w := &watcher{e: e, events: make(chan watched, 1000), errorsAllowed: e.h.Polled != "" && !e.expires && !e.h.Bubble}
	var done sync.WaitGroup
	done.Go(func() {
		for ev, err := range c.Watch(ctx, e.prefix) {
			w.events <- watched{ev, err}
		}
	})
	e.Cleanup(func() { cancel(); done.Wait() })
	return w
}

// until waits for an event.
func (w *watcher) until(what string, is func(*holdfast.Event) bool) {
	w.e.Helper()
	bound := promptly
	if w.e.h.Polled != "" || w.e.expires {
		bound = patience
	}
	var seen []string
	for end := time.After(bound); ; {
		select {
		case got := <-w.events:
			seen = append(seen, fmt.Sprintf("%s %+v (%v)", got.event.Type, got.event.Record, got.err))
			if got.err != nil && !(w.errorsAllowed && outage(got.err)) {
				w.e.Fatalf("while %s was awaited: %v", what, got.err)
			}
			if got.err == nil && is(&got.event) {
				return
			}
		case <-end:
			w.e.Fatalf("within %v no event reported: %s; events:\n%s", bound, what, strings.Join(seen, "\n"))
		}
	}
}

// outage reports whether an error says that the store does not answer.
func outage(err error) bool {
	return errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrUnavailable)
}

// fails waits for one error, after which none may follow.
func (w *watcher) fails() {
	w.e.Helper()
	for end := time.After(patience); ; {
		select {
		case got := <-w.events:
			if got.err == nil {
				continue
			}
			if !outage(got.err) {
				w.e.Errorf("the error of an outage: %v", got.err)
			}
			return
		case <-end:
			w.e.Fatal("a watcher that is cut off reports no error")
		}
	}
}
