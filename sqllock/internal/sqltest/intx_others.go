package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// A Lock that meets an open transaction gets the lock when that is rolled back, and when the holder
// of a committed one has released it.
func (x *InTx) WaitingLock(t *testing.T) {
	a, b := x.client(t), x.client(t)
	name := t.Name()
	last := uint64(0)
	for _, commits := range []bool{false, true} {
		tx := x.begin(t, sql.LevelDefault)
		ticket := ticketFor(t, a, tx.Tx, name)
		type result struct {
			l   *holdfast.Lease
			err error
		}
		got := make(chan result, 1)
		go func() { l, err := b.Mutex(name).Lock(t.Context()); got <- result{l, err} }()
		x.await(t, "a Lock waits for the row", func() bool { return x.Waiting() > 0 })
		select {
		case r := <-got:
			t.Fatalf("Lock returned while the transaction was open: %v", r.err)
		default:
		}
		ended := time.Now()
		if commits {
			tx.commit()
			l := resumed(t, a, ticket)
			x.await(t, "the Lock is in the queue", func() bool {
				r, err := a.Inspect(t.Context(), name)
				return err == nil && r.Waiting == 1
			})
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			free(t, l)
		} else {
			tx.rollback()
		}
		r := <-got
		if r.err != nil {
			t.Fatalf("Lock: %v", r.err)
		}
		if d := time.Since(ended); d > 20*time.Second { // the TTL is a minute
			t.Errorf("the waiter had the lock %v after the transaction", d)
		}
		if r.l.Token() <= last {
			t.Errorf("token %d after %d", r.l.Token(), last)
		}
		last = r.l.Token()
		free(t, r.l)
	}
}

func (x *InTx) await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) { // no event reports it
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// What other clients see while a transaction is open: calls end within their bounds, with
// ErrUnavailable, and other names are not affected.
func (x *InTx) OthersMeanwhile(t *testing.T) {
	a, b := x.client(t), x.client(t)
	short := x.clientOn(t, x.Dialect(), 2*time.Second)
	name := t.Name()
	tx := x.begin(t, sql.LevelDefault)
	ticketFor(t, a, tx.Tx, name)
	free(t, locked(t, b, name+"/other"))
	instead := holdfast.ErrUncertain // its own time limit may come first
	timed := func(what string, most time.Duration, want error, f func() error) {
		t.Helper()
		began := time.Now()
		err := f()
		d := time.Since(began)
		t.Logf("%s: %v after %v", what, err, d)
		if !errors.Is(err, want) && !errors.Is(err, instead) || d > most {
			t.Errorf("%s: %v after %v; want %v", what, err, d, want)
		}
	}
	timed("TryLock", 30*time.Second, holdfast.ErrUnavailable, func() error {
		_, err := b.Mutex(name).TryLock(t.Context())
		return err
	})
	timed("Lock with a TTL of 2s", 30*time.Second, holdfast.ErrUnavailable, func() error {
		_, err := short.Mutex(name).Lock(t.Context())
		return err
	})
	timed("Lock with a deadline", 30*time.Second, context.DeadlineExceeded, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := b.Mutex(name).Lock(ctx)
		return err
	})
	timed("InTx", 30*time.Second, holdfast.ErrHeld, func() error {
		_, err := b.InTx(t.Context(), x.begin(t, sql.LevelDefault).Tx, name)
		return err
	})
	tx.rollback()
	free(t, locked(t, b, name))
}

// A refused InTx leaves the transaction as it was, and does not hold up the holder.
func (x *InTx) Refused(t *testing.T) {
	a, b := x.client(t), x.client(t)
	name := t.Name()
	l := locked(t, a, name)
	tx := x.begin(t, sql.LevelDefault)
	_, err := b.InTx(t.Context(), tx.Tx, name)
	var e *holdfast.Error
	if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil || e.Holder.Token != l.Token() {
		t.Errorf("%v; want ErrHeld, with the holder", err)
	}
	free(t, l) // the open transaction has not locked the row
	next := locked(t, a, name)
	tx.order(name)
	tx.commit()
	free(t, next)

	s, err := a.Semaphore(name, 2).Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	tx = x.begin(t, sql.LevelDefault)
	refusedWith(t, holdfast.ErrKind)(b.InTx(t.Context(), tx.Tx, name))
	free(t, s)
	for _, bad := range []any{nil, "tx", (*sql.Tx)(nil), x.Open()} {
		refusedWith(t, holdfast.ErrInvalid)(b.InTx(t.Context(), bad, name))
	}
	refusedWith(t, holdfast.ErrInvalid)(b.InTx(t.Context(), tx.Tx, ""))
	ticket := ticketFor(t, b, tx.Tx, name)
	tx.commit()
	free(t, resumed(t, b, ticket))
	refusedWith(t, holdfast.ErrInvalid)(b.InTx(t.Context(), tx.Tx, name)) // it has ended

	// A kept name is not free.
	kept, err := a.Mutex(name, holdfast.MinHold(time.Hour)).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	free(t, kept)
	refusedWith(t, holdfast.ErrHeld)(b.InTx(t.Context(), x.begin(t, sql.LevelDefault).Tx, name))
}

// between is a dialect that does something after InTx has found the name free, and before it locks
// the row.
type between struct {
	sqllock.Dialect
	do func()
}

func (d between) Tx(tx any) sqllock.Tx { return betweenTx{d.Dialect.Tx(tx), d.do} }

type betweenTx struct {
	sqllock.Tx
	do func()
}

func (t betweenTx) Row(ctx context.Context, text string, args []any, dest ...any) (bool, error) {
	t.do()
	return t.Tx.Row(ctx, text, args, dest...)
}

// Somebody takes the name, or locks it, or deletes its row, while InTx asks.
func (x *InTx) InBetween(t *testing.T) {
	b := x.client(t)
	name := t.Name()
	var do func()
	a := x.clientOn(t, between{x.Dialect(), func() { // once for each InTx
		if f := do; f != nil {
			do = nil
			f()
		}
	}}, time.Minute)
	var l *holdfast.Lease
	do = func() { l = locked(t, b, name) }
	tx := x.begin(t, sql.LevelDefault)
	refusedWith(t, holdfast.ErrRetry)(a.InTx(t.Context(), tx.Tx, name))
	tx.rollback()
	free(t, l)

	do = func() { free(t, locked(t, b, name)) } // the row is another, and free
	tx = x.begin(t, sql.LevelDefault)
	ticket := ticketFor(t, a, tx.Tx, name)
	tx.commit()
	l = resumed(t, b, ticket)
	free(t, l)

	var end func()
	do = func() { end = x.Block(name) }
	refusedWith(t, holdfast.ErrHeld)(a.InTx(t.Context(), x.begin(t, sql.LevelDefault).Tx, name))
	end()

	do = func() {
		if _, err := x.Open().Exec("DELETE FROM hf_lock"); err != nil {
			t.Error(err)
		}
	}
	// Not ErrHeld, with which tx may go on: MySQL has locked the gap, and a Lock of a new name waits.
	refusedWith(t, holdfast.ErrRetry)(a.InTx(t.Context(), x.begin(t, sql.LevelDefault).Tx, name))
}

// A transaction that has read before InTx: where it cannot see what has changed since, InTx returns
// ErrRetry. Otherwise it decides by the newest state.
func (x *InTx) AfterARead(t *testing.T) {
	a, b := x.client(t), x.client(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		name := fmt.Sprintf("%s/%v", t.Name(), level)
		for _, change := range []string{"the name is new", "the row has changed"} {
			tx := x.begin(t, level)
			if _, err := tx.Exec("SELECT * FROM orders"); err != nil {
				t.Fatal(err)
			}
			before := locked(t, b, name)
			free(t, before)
			ticket, err := a.InTx(t.Context(), tx.Tx, name)
			if x.Snapshots[level] {
				if !errors.Is(err, holdfast.ErrRetry) {
					t.Errorf("%v, %s: %v; want ErrRetry", level, change, err)
				}
				tx.rollback()
				tx = x.begin(t, level)
				ticket, err = a.InTx(t.Context(), tx.Tx, name) // as it says
			}
			if err != nil {
				t.Fatalf("%v, %s: %v", level, change, err)
			}
			tx.commit()
			l := resumed(t, a, ticket)
			if l.Token() <= before.Token() {
				t.Errorf("%v, %s: token %d after %d", level, change, l.Token(), before.Token())
			}
			free(t, l)
		}
	}
}

// All runs all tests.
func (x *InTx) All(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"commit", x.CommitAndRollback}, {"crash", x.Crashes}, {"long", x.LongTransaction}, {"ten", x.TenAtOnce},
		{"waiting", x.WaitingLock}, {"meanwhile", x.OthersMeanwhile}, {"refused", x.Refused}, {"between", x.InBetween},
		{"read", x.AfterARead},
	} {
		t.Run(c.name, c.test)
	}
}
