package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A reader that comes while the grant of its client is on its way shares it. So it has a smaller token than
// a reader under a later grant whose lease has begun before, but not than a writer.
func TestReaderSharesAGrantOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		slow := make(chan struct{})
		c := client(t, &hooks{Backend: store,
			acquire: func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
				defer func() { <-slow }()
				return next()
			},
		}, nil)
		other := client(t, store, nil)
		before := lock(t, other, "x")
		release(t, before)
		asker := lockAsync(t, c.RWMutex("x").RLock)
		stillWaiting(t, "the asker", asker)
		elsewhere := acquired(t, "a reader of another client", lockAsync(t, other.RWMutex("x").RLock))
		second := lockAsync(t, c.RWMutex("x").RLock)
		synctest.Wait()
		writer := queue(t, other, 1)[0]
		close(slow)
		a, b := acquired(t, "the asker", asker), acquired(t, "the second", second)
		records(t, store, 2, 1)
		release(t, elsewhere)
		release(t, a)
		stillWaiting(t, "a writer beside a reader", writer)
		release(t, b)
		w := acquired(t, "the writer", writer)
		if a.Token() != b.Token() || b.Token() <= before.Token() || elsewhere.Token() <= b.Token() ||
			w.Token() <= elsewhere.Token() {
			t.Errorf("tokens: %d, then %d and %d, %d elsewhere, then %d", before.Token(), a.Token(), b.Token(),
				elsewhere.Token(), w.Token())
		}
		release(t, w)
		records(t, store, 0, 0)
	})
}

// A grant of which the client hears late is confirmed, and is then for all who wait. A call that comes while
// that goes on shares it, too.
func TestLateGrantIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		slow := make(chan struct{})
		exchanges := 0
		c := client(t, &hooks{Backend: store,
			acquire: func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
				r, err := next()
				if exchanges++; exchanges == 1 {
					time.Sleep(ttl/3 + time.Second) // too late to be relied on
				} else {
					<-slow
				}
				return r, err
			},
		}, nil)
		readers := reads(t, c, 2)
		time.Sleep(ttl / 2)
		stillWaiting(t, "a reader whose grant is not confirmed", readers[1])
		readers = append(readers, reads(t, c, 1)...)
		records(t, store, 1, 0)
		close(slow)
		for _, ch := range readers {
			l := acquired(t, "a reader", ch)
			if left := l.Left(); left <= ttl/2 {
				t.Errorf("%v left", left)
			}
			defer release(t, l)
		}
		if exchanges != 2 {
			t.Errorf("%d exchanges; want 2", exchanges)
		}
		records(t, store, 1, 0)
	})
}

// A writer that becomes a reader lets in the readers of its own client. They share a grant beside its own,
// and a writer that came after them waits for all.
func TestReadersBesideADowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		w := must(c.RWMutex("x").Lock(t.Context()))(t)
		waiting := reads(t, c, 3)
		stillWaiting(t, "a reader beside a writer", waiting[2])
		next := lockAsync(t, c.RWMutex("x").Lock)
		stillWaiting(t, "the next writer", next)
		if err := w.Downgrade(); err != nil {
			t.Fatal(err)
		}
		var readers []*holdfast.Lease
		for _, ch := range waiting {
			readers = append(readers, acquired(t, "a reader", ch))
		}
		records(t, store, 2, 1)
		if readers[0].Token() <= w.Token() || readers[2].Token() != readers[0].Token() {
			t.Errorf("tokens %d and %d after %d", readers[0].Token(), readers[2].Token(), w.Token())
		}
		for _, l := range append(readers, w) {
			stillWaiting(t, "the next writer", next)
			release(t, l)
		}
		release(t, acquired(t, "the next writer", next))
		records(t, store, 0, 0)
	})
}

// Readers whose asker gives up keep its place, before a writer of their client that came after them.
func TestReadersKeepTheirPlaceBeforeAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		first := lock(t, client(t, store, nil), "x")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { _, err := c.RWMutex("x").RLock(ctx); gaveUp <- err }()
		synctest.Wait()
		before := reads(t, c, 2)
		writer := lockAsync(t, c.RWMutex("x", holdfast.Fair()).Lock)
		stillWaiting(t, "a writer", writer)
		after := reads(t, c, 2)
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		records(t, store, 1, 3)
		release(t, first)
		for _, ch := range before {
			l := acquired(t, "a reader before the writer", ch)
			stillWaiting(t, "a writer beside a reader", writer)
			release(t, l)
		}
		w := acquired(t, "the writer", writer)
		stillWaiting(t, "a reader after the writer", after[0])
		release(t, w)
		for _, ch := range after {
			release(t, acquired(t, "a reader after the writer", ch))
		}
		records(t, store, 0, 0)
	})
}
