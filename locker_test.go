package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var errs []error
		report := func(err error) { errs = append(errs, err) }
		a := client(t, store, nil)
		b := client(t, store, nil)
		la, lb := a.Mutex("x").Locker(t.Context(), report), b.Mutex("x").Locker(t.Context(), report)
		n := 0
		var all sync.WaitGroup
		for _, l := range []sync.Locker{la, la, lb, lb} {
			all.Go(func() {
				for range 20 {
					l.Lock()
					n++
					l.Unlock()
				}
			})
		}
		all.Wait()
		if n != 80 || len(errs) != 0 {
			t.Errorf("n = %d, errors %v", n, errs)
		}

		la.Lock()
		r, err := b.Inspect(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Break(t.Context(), "x", r.Token, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		la.Unlock()
		if len(errs) != 1 || !errors.Is(errs[0], holdfast.ErrLost) {
			t.Errorf("Unlock of a lost lock reported %v", errs)
		}

		mustPanic(t, "Unlock of what is not locked", la.Unlock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lb.Lock()
		late := a.Mutex("x").Locker(ctx, report)
		mustPanic(t, "Lock that gives up", late.Lock)
		if !errors.Is(errs[len(errs)-1], context.DeadlineExceeded) {
			t.Errorf("Lock that gave up reported %v", errs)
		}
		mustPanic(t, "Lock that gives up, again", late.Lock)
		lb.Unlock()
	})
}

// A report that panics in Unlock leaves the Locker free.
func TestLockerWithAReportThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		l := c.Mutex("x").Locker(t.Context(), func(err error) { panic(err) })
		l.Lock()
		r, err := c.Inspect(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Break(t.Context(), "x", r.Token, ""); err != nil {
			t.Fatal(err)
		}
		mustPanic(t, "Unlock of a lost lock", l.Unlock)
		within(t, "Lock", 0, time.Second, l.Lock)
		l.Unlock()
	})
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	f()
}

func TestInvalid(t *testing.T) {
	c := client(t, memlock.New(), nil)
	for want, m := range map[string]*holdfast.Mutex{
		"empty":                             c.Mutex(""),
		"513 bytes":                         c.Mutex(strings.Repeat("x", 513)),
		"not valid UTF-8":                   c.Mutex("\xff"),
		"MaxHold of 0s":                     c.Mutex("x", holdfast.MaxHold(0)),
		"MinHold of -1s":                    c.Mutex("x", holdfast.MinHold(-time.Second)),
		"WaitAtMost of 0s":                  c.Mutex("x", holdfast.WaitAtMost(0)),
		"Poll(0s, 3)":                       c.Mutex("x", holdfast.Poll(0, 3)),
		"Poll(1s, 0)":                       c.Mutex("x", holdfast.Poll(time.Second, 0)),
		"the key is empty":                  c.Mutex("x", holdfast.Label("", "v")),
		"without MinHold":                   c.Mutex("x", holdfast.RetryFailed()),
		"invalid note: it takes 5000 bytes": c.Mutex("x", holdfast.Note(strings.Repeat("n", 5000))),
	} {
		for _, f := range []func(context.Context) (*holdfast.Lease, error){m.Lock, m.TryLock} {
			if _, err := f(t.Context()); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v; want ErrInvalid with %q", err, want)
			}
		}
	}
	for want, cfg := range map[string]*holdfast.Config{
		"TTL 1ms: allowed are 100ms to 24h": {TTL: time.Millisecond},
		"TTL 25h":                           {TTL: 25 * time.Hour},
		"margin 6s":                         {TTL: 10 * time.Second, Margin: 6 * time.Second},
		"Labels: a key is empty":            {Labels: map[string]string{"": "v"}},
		"labels":                            {Labels: map[string]string{"k": strings.Repeat("v", 4000)}},
	} {
		if _, err := holdfast.New(t.Context(), memlock.New(), cfg); !errors.Is(err, holdfast.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("New: %v; want ErrInvalid with %q", err, want)
		}
	}
	if err := c.Break(t.Context(), "", 1, ""); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("Break: %v", err)
	}
	if err := c.Break(t.Context(), "x", 1, ""); !errors.Is(err, holdfast.ErrGone) {
		t.Errorf("Break: %v", err)
	}
	if _, err := c.Inspect(t.Context(), ""); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("Inspect: %v", err)
	}
	for _, prefix := range []string{"\xff", strings.Repeat("x", 513)} {
		for _, err := range c.Locks(t.Context(), prefix) {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("Locks: %v", err)
			}
		}
		for _, err := range c.Watch(t.Context(), prefix) {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Fatalf("Watch: %v", err)
			}
		}
	}
	if err := c.SetLimit(t.Context(), "x", -1); !errors.Is(err, holdfast.ErrInvalid) ||
		!strings.Contains(err.Error(), "limit -1: allowed are 1 to 1073741824, and 0 to remove the one that is set") {
		t.Errorf("SetLimit: %v", err)
	}
}

func TestLocks(t *testing.T) {
	c := client(t, memlock.New(), nil)
	for i := range 250 {
		lock(t, c, "l/"+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	lock(t, c, "m")
	n, last := 0, ""
	for r, err := range c.Locks(t.Context(), "l/") {
		if err != nil || r.Name <= last || r.Kind != "lock" {
			t.Fatalf("%+v, %v after %q", r, err, last)
		}
		last = r.Name
		n++
	}
	if n != 250 {
		t.Errorf("%d locks; want 250", n)
	}
	for range c.Locks(t.Context(), "") {
		break // stopping early is fine
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range c.Locks(ctx, "") {
		if err == nil {
			t.Error("no error from a context that has ended")
		}
	}
}

// A context that outlives many leases does not collect them.
func TestNoLeakInTheParent(t *testing.T) {
	c := client(t, memlock.New(), nil)
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func(n int) (objects uint64) {
		for range n {
			if err := c.Mutex("x").Do(parent, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	const n = 20_000
	before := run(100)
	after := run(n)
	for end := time.Now().Add(20 * time.Second); after > before+n/2 && time.Now().Before(end); after = run(0) {
		time.Sleep(10 * time.Millisecond) // goroutines that detach contexts are still running
	}
	if after > before+n/2 { // a leak is at least one object for each Do
		t.Errorf("%d more objects on the heap after %d times Do under one context", after-before, n)
	}
}

// The allocations of Do are limited; the store in memory is part of them.
func TestAllocations(t *testing.T) {
	c := client(t, memlock.New(), nil)
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := testing.AllocsPerRun(1000, func() {
		_ = c.Mutex("x").Do(parent, func(context.Context) error { return nil })
	})
	if a > 45 {
		t.Errorf("%.0f allocations for a Do on memlock; want at most 45", a)
	}
}
