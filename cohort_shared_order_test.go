package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"

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
