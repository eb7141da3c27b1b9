package sqltest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// OthersWithLockedRows takes and releases a name while several callers each ask for a dozen others
// with locked rows.
func (x *Locked) OthersWithLockedRows(t *testing.T) {
	const names, callers, enough = 12, 5, 800 * time.Millisecond // a pair takes some milliseconds
	c := x.client(t)
	name := func(i int) string { return fmt.Sprintf("%s/%d", t.Name(), i) }
	for i := range names {
		l, err := c.Mutex(name(i)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range names {
		defer x.Block(name(i))()
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for i := range names {
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					short, cancel := context.WithTimeout(ctx, 3*time.Second)
					_, _ = c.Mutex(name(i)).Lock(short)
					cancel()
				}
			})
		}
	}
	for began := time.Now(); x.Waiting() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("nothing waits for a row")
		}
	}
	var took []time.Duration
	for range 10 {
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		l, err := c.Mutex(t.Name() + "/free").Lock(short)
		cancel()
		if err != nil {
			t.Fatalf("Lock of a name whose row nobody has locked: %v", err)
		}
		if err := l.Release(); err != nil {
			t.Errorf("Release of a name without a locked row: %v", err)
		}
		took = append(took, time.Since(began))
	}
	if slices.Sort(took); took[len(took)/2] > enough { // a busy machine delays some
		t.Errorf("a name without a locked row was taken and released in %v; want %v at most", took, enough)
	}
}

// GivenUpWithALockedRow cancels many requests for a name with a locked row, and then one for
// another name. Cancels of the first name wait for its row, and delay none of the others.
func (x *Locked) GivenUpWithALockedRow(t *testing.T) {
	const many, enough = 200, 4 * time.Second // one Cancel may wait 5 s for a locked row
	c, d := x.client(t), x.client(t)
	locked, other := t.Name()+"/locked", t.Name()+"/other"
	lock := func(c *holdfast.Client, ctx context.Context, name string) (*holdfast.Lease, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return c.Mutex(name).Lock(ctx)
	}
	for _, name := range []string{locked, other} {
		if _, err := lock(d, t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func(name string) int {
		t.Helper()
		r, err := d.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return r.Waiting
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > 30*time.Second {
				t.Fatal("not within 30 s: " + what)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for range many {
		all.Go(func() { _, _ = lock(c, ctx, locked) })
	}
	one, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	all.Go(func() { _, _ = lock(c, one, other) })
	until("all wait", func() bool { return waiting(locked) == many && waiting(other) == 1 })
	defer x.Block(locked)()
	stop()
	until("a statement waits for the row", func() bool { return x.Waiting() > 0 })
	giveUp()
	all.Wait()
	began := time.Now()
	until("the other place is cancelled", func() bool { return waiting(other) == 0 })
	if d := time.Since(began); d > enough {
		t.Errorf("a place without a locked row ended %v after its cancel; want %v at most", d, enough)
	}
}
