package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// ClockSteps sets the clock of the whole server forward, with a holder and a waiter, and back. The
// waiter gets the lock early, the holder learns of it at its next renewal, and tokens grow. Grants
// made while the clock is ahead stay, and can be renewed and released afterwards.
func ClockSteps(t *testing.T, clock *testenv.Clock, open func() *sql.DB, dialect func() sqllock.Dialect) {
	const ttl = 6 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := func() *holdfast.Client {
		b := sqllock.New(open(), dialect(), nil)
		t.Cleanup(func() { _ = b.Close() })
		c, err := holdfast.New(ctx, b, &holdfast.Config{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	holder, waiter, third := client(), client(), client()
	lock := func(c *holdfast.Client) *holdfast.Lease {
		t.Helper()
		l, err := c.Mutex("x").Lock(ctx)
		if err != nil {
			t.Fatalf("Lock: %v", err)
		}
		return l
	}
	last := lock(holder)
	for range 3 {
		got := make(chan *holdfast.Lease, 1)
		go func() {
			defer close(got)
			if l, err := waiter.Mutex("x").Lock(ctx); err == nil {
				got <- l
			}
		}()
		for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
			r, err := third.Inspect(ctx, "x")
			if err != nil {
				t.Fatal(err)
			}
			waiting = r.Waiting
		}
		clock.Jump(time.Hour)
		next := <-got
		if next == nil {
			t.Fatal("the waiter got nothing after the clock was set forward")
		}
		if next.Token() <= last.Token() {
			t.Errorf("token %d after %d", next.Token(), last.Token())
		}
		select {
		case <-last.Done():
			if !errors.Is(last.Err(), holdfast.ErrLost) {
				t.Errorf("the lease that has ended early: %v", last.Err())
			}
		case <-ctx.Done():
			t.Fatal("the holder was never notified of the end of its lease")
		}
		clock.Jump(-2 * time.Hour)
		if l, err := third.Mutex("x").TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock of a lock granted while the clock was ahead = %v, %v", l, err)
		}
		time.Sleep(ttl / 2) // it is renewed meanwhile
		if err := next.Err(); err != nil {
			t.Errorf("the lease granted while the clock was ahead: %v", err)
		}
		if err := next.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
		last = lock(holder)
		if last.Token() <= next.Token() {
			t.Errorf("token %d after %d", last.Token(), next.Token())
		}
	}
}
