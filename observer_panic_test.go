package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// panics runs f and reports whether it panicked. It recovers, as a server does around a handler.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// An Observer panics, and its caller recovers: the client does not go on renewing a lease that
// nobody has.
func TestObserverThatPanicsLeavesNoLease(t *testing.T) {
	for _, what := range []string{"Lock", "TryLock", "LockAll", "LockAll, waiting", "Lock of a Locker", "Adopt"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				harm := ""
				c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
					Acquired: func(name string, _ uint64, _ time.Duration) {
						if name == harm {
							panic("of an observer")
						}
					},
					Waiting: func(w holdfast.Waiting) {
						if w.Name == harm {
							panic("of an observer")
						}
					},
				}})
				other := client(t, store, nil)
				harm = "x"
				giveUp, cancel := context.WithCancel(t.Context())
				defer cancel()
				locker := c.Mutex("x").Locker(giveUp, nil)
				try := map[string]func(){
					"Lock":             func() { _, _ = c.Mutex("x").Lock(t.Context()) },
					"TryLock":          func() { _, _ = c.Mutex("x").TryLock(t.Context()) },
					"LockAll":          func() { _, _ = holdfast.LockAll(t.Context(), c.Mutex("a"), c.Mutex("x")) },
					"LockAll, waiting": func() { _, _ = holdfast.LockAll(t.Context(), c.Mutex("a"), c.Mutex("x")) },
					"Lock of a Locker": func() { locker.Lock() },
					"Adopt": func() {
						ticket, _, err := lock(t, other, "x").HandOff()
						if err != nil {
							t.Error(err)
						}
						_, _ = c.Adopt(t.Context(), ticket)
					},
				}[what]
				var held *holdfast.Lease
				if what == "LockAll, waiting" {
					held = lock(t, other, "x")
				}
				if !panics(try) {
					t.Fatal("no panic")
				}
				if held != nil {
					release(t, held)
				}
				harm = ""
				time.Sleep(2 * ttl)
				for _, name := range []string{"a", "x"} {
					l, err := other.Mutex(name).TryLock(t.Context())
					if err != nil {
						t.Errorf("two TTLs later: %v", err)
						continue
					}
					release(t, l)
				}
				if what == "Lock of a Locker" {
					got := make(chan struct{})
					go func() { defer close(got); panics(func() { locker.Lock(); defer locker.Unlock() }) }()
					select {
					case <-got:
					case <-time.After(2 * ttl):
						t.Error("the Locker stays locked")
					}
				}
			})
		})
	}
}

// A waiter whose Observer panics leaves the queue at once; nobody waits for its place to expire.
func TestObserverThatPanicsLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
			Waiting: func(holdfast.Waiting) { panic("of an observer") },
		}})
		other := client(t, store, nil)
		held := lock(t, other, "x")
		if !panics(func() { _, _ = c.Mutex("x").Lock(t.Context()) }) {
			t.Fatal("no panic")
		}
		release(t, held)
		began := time.Now()
		l, err := other.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the next waited for %v behind a place that nobody wants", took)
		}
		release(t, l)
	})
}
