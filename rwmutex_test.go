package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// take returns the lease of a Lock that must succeed.
func take(t testing.TB) func(*holdfast.Lease, error) *holdfast.Lease {
	return func(l *holdfast.Lease, err error) *holdfast.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func refused(t testing.TB, want error) func(*holdfast.Lease, error) {
	return func(_ *holdfast.Lease, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got %v; want %v", err, want)
		}
	}
}

// lockAsync starts f and returns a channel that yields its lease. An error after the end of the test is none: a test
// that has failed leaves waiters.
func lockAsync(t testing.TB, f func(context.Context) (*holdfast.Lease, error)) <-chan *holdfast.Lease {
	ch := make(chan *holdfast.Lease, 1)
	ctx := t.Context()
	go func() {
		l, err := f(ctx)
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		ch <- l
	}()
	return ch
}

func stillWaiting(t testing.TB, who string, ch <-chan *holdfast.Lease) {
	t.Helper()
	synctest.Wait()
	select {
	case <-ch:
		t.Fatalf("%s has the lock", who)
	default:
	}
}

func acquired(t testing.TB, who string, ch <-chan *holdfast.Lease) *holdfast.Lease {
	t.Helper()
	synctest.Wait()
	select {
	case l := <-ch:
		return l
	default:
		t.Fatalf("%s does not have the lock", who)
		return nil
	}
}

// Readers share, a writer is alone, and newcomers wait behind a waiting writer.
func TestRWMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil).RWMutex("x"), client(t, store, nil).RWMutex("x")
		r1, r2 := take(t)(a.RLock(t.Context())), take(t)(b.TryRLock(t.Context()))
		if r2.Token() <= r1.Token() {
			t.Errorf("tokens %d, %d", r1.Token(), r2.Token())
		}
		refused(t, holdfast.ErrHeld)(b.TryLock(t.Context()))
		writer := lockAsync(t, b.Lock)
		stillWaiting(t, "a writer among readers", writer)
		refused(t, holdfast.ErrHeld)(a.TryRLock(t.Context()))
		r3, r4 := lockAsync(t, a.RLock), lockAsync(t, b.RLock)
		stillWaiting(t, "a reader behind a waiting writer", r3)
		release(t, r1)
		stillWaiting(t, "a writer beside a reader", writer)
		release(t, r2)
		w := acquired(t, "the writer", writer)
		stillWaiting(t, "a reader beside a writer", r3)
		release(t, w)
		// Both readers are let in together.
		release(t, acquired(t, "the first reader", r3))
		release(t, acquired(t, "the second reader", r4))
		if err := a.RDo(t.Context(), func(context.Context) error {
			refused(t, holdfast.ErrHeld)(b.TryLock(t.Context()))
			return nil
		}); err != nil {
			t.Error(err)
		}
		if err := a.Do(t.Context(), func(context.Context) error {
			refused(t, holdfast.ErrHeld)(b.TryRLock(t.Context()))
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// A writer that becomes a reader lets in the readers at the head of the queue, and no writer before
// it has ended.
func TestDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil).RWMutex("x"), client(t, store, nil).RWMutex("x")
		l := take(t)(a.Lock(t.Context()))
		token := l.Token()
		reader := lockAsync(t, b.RLock)
		stillWaiting(t, "a reader beside a writer", reader)
		writer := lockAsync(t, b.Lock)
		stillWaiting(t, "a second writer", writer)
		behind := lockAsync(t, b.RLock)
		stillWaiting(t, "a reader behind a waiting writer", behind)
		if err := l.Downgrade(); err != nil {
			t.Fatal(err)
		}
		r := acquired(t, "the reader at the head of the queue", reader)
		stillWaiting(t, "a writer beside readers", writer)
		stillWaiting(t, "a reader behind the writer", behind)
		if l.Token() != token || l.Err() != nil {
			t.Errorf("downgraded: token %d, %v; want %d", l.Token(), l.Err(), token)
		}
		if err := l.Downgrade(); err != nil {
			t.Errorf("once more: %v", err)
		}
		time.Sleep(10 * ttl) // it is renewed as before
		release(t, l)
		release(t, r)
		release(t, acquired(t, "the writer", writer))
		release(t, acquired(t, "the last reader", behind))
		if err := l.Downgrade(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Downgrade of a released lease: %v", err)
		}
		p := take(t)(client(t, store, nil).Semaphore("s", 2).Acquire(t.Context(), 1))
		if err := p.Downgrade(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Downgrade of permits: %v", err)
		}
	})
}

// If the store did not answer, the lease is for reading at most, and the client repeats the
// downgrade until the store answers.
func TestDowngradeInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		a, b := client(t, conn, nil).RWMutex("x", holdfast.Reentrant()), client(t, store, nil).RWMutex("x")
		l := take(t)(a.Lock(t.Context()))
		reader := lockAsync(t, b.RLock)
		heal := conn.Cut()
		if err := l.Downgrade(); !errors.Is(err, holdfast.ErrUncertain) && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("Downgrade in an outage: %v", err)
		}
		refused(t, holdfast.ErrUpgrade)(a.Lock(l.Context(t.Context())))
		stillWaiting(t, "a reader beside what the store takes for a writer", reader)
		heal()
		time.Sleep(ttl)
		acquired(t, "the reader", reader)
		release(t, l)
	})
}

// The client repeats a downgrade that the store has refused. Otherwise readers would wait for the
// release, although the lease is for reading only.
func TestDowngradeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		refusals := 3
		h := &hooks{Backend: store, down: func(next func() error) error {
			if refusals--; refusals >= 0 {
				return fmt.Errorf("%w: read-only", driver.ErrRefused)
			}
			return next()
		}}
		l := take(t)(client(t, h, nil).RWMutex("x").Lock(t.Context()))
		reader := lockAsync(t, client(t, store, nil).RWMutex("x").RLock)
		if err := l.Downgrade(); !errors.Is(err, holdfast.ErrRefused) {
			t.Errorf("a Downgrade that is refused: %v", err)
		}
		time.Sleep(ttl / 2)
		acquired(t, "the reader", reader)
		release(t, l)
	})
}

// The leases that a context carries decide which locks it may take.
func TestReentrantRWMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		plain, again := c.RWMutex("x"), c.RWMutex("x", holdfast.Reentrant())
		w := take(t)(plain.Lock(t.Context()))
		writing := w.Context(t.Context())
		refused(t, holdfast.ErrDeadlock)(plain.Lock(writing))
		refused(t, holdfast.ErrDeadlock)(plain.RLock(writing))
		read, write := take(t)(again.RLock(writing)), take(t)(again.Lock(writing))
		if read.Token() != w.Token() || write.Token() != w.Token() {
			t.Error("a borrowed lease has a token of its own")
		}
		// Further out, the context still has the writer to borrow from.
		release(t, take(t)(again.Lock(read.Context(writing))))
		if err := w.Downgrade(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Downgrade beside a borrowed write lease: %v", err)
		}
		if err := write.Downgrade(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Downgrade of a borrowed lease: %v", err)
		}
		release(t, write)
		if err := w.Downgrade(); err != nil {
			t.Errorf("Downgrade beside a borrowed read lease: %v", err)
		}
		if err := read.Err(); err != nil {
			t.Errorf("the borrowed read lease, after the downgrade: %v", err)
		}
		refused(t, holdfast.ErrUpgrade)(again.Lock(writing))
		release(t, w)
		if err := read.Err(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("a borrowed lease outlives the outer one: %v", err)
		}

		r := take(t)(plain.RLock(t.Context()))
		reading := r.Context(t.Context())
		for _, m := range []*holdfast.RWMutex{plain, again} {
			refused(t, holdfast.ErrUpgrade)(m.Lock(reading))
			refused(t, holdfast.ErrDeadlock)(m.TryLock(reading))
		}
		refused(t, holdfast.ErrDeadlock)(plain.RLock(reading))
		release(t, take(t)(again.RLock(reading)))
		release(t, r)
	})
}
