package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// reads makes n calls of c read x, one after the other, which need not have to wait.
func reads(t *testing.T, c *holdfast.Client, n int, opts ...holdfast.Option) []<-chan *holdfast.Lease {
	t.Helper()
	all := make([]<-chan *holdfast.Lease, n)
	for i := range all {
		all[i] = lockAsync(t, c.RWMutex("x", opts...).RLock)
		synctest.Wait()
	}
	return all
}

// records checks how many records of holders, and of requests that wait, the store has of x.
func records(t *testing.T, store *memlock.Store, holding, waiting int) {
	t.Helper()
	r := must(store.Inspect(context.Background(), "x"))(t)
	if len(r.Holders) != holding || r.Waiting != waiting {
		t.Errorf("%d hold and %d wait at the store; want %d and %d", len(r.Holders), r.Waiting, holding, waiting)
	}
}

// share makes n calls of c wait for a read lock of x and lets them in, under one grant.
func share(t *testing.T, store *memlock.Store, c *holdfast.Client, n int) []*holdfast.Lease {
	t.Helper()
	other := client(t, store, nil)
	first := lock(t, other, "x")
	waiting := reads(t, c, n)
	records(t, store, 1, 1)
	release(t, first)
	var readers []*holdfast.Lease
	for _, ch := range waiting {
		r := acquired(t, "a reader", ch)
		if readers = append(readers, r); r.Token() != readers[0].Token() || r.Token() <= first.Token() || r.Err() != nil {
			t.Fatalf("token %d, %v; want %d, larger than %d", r.Token(), r.Err(), readers[0].Token(), first.Token())
		}
	}
	records(t, store, 1, 0)
	return readers
}

// Readers that wait in one client are let in under one grant, which the last of them gives back.
func TestReadersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		counting, n := counted(store)
		c, other := client(t, counting, nil), client(t, store, nil)
		readers := share(t, store, c, 100)
		if h := c.Held(); len(h) != 100 || h[0].Mode != holdfast.ModeShared || c.Health().Held != 100 {
			t.Errorf("%d are held, %d by Health; want 100", len(h), c.Health().Held)
		}
		late := acquired(t, "a reader that comes later", reads(t, c, 1)[0])
		if late.Token() <= readers[0].Token() {
			t.Errorf("token %d after %d", late.Token(), readers[0].Token())
		}
		records(t, store, 2, 0)
		release(t, late)
		before := n.Load()
		time.Sleep(5 * ttl) // one renewal is for all
		writer := queue(t, other, 1)[0]
		for _, r := range readers {
			stillWaiting(t, "a writer beside a reader", writer)
			if err := r.Release(); err != nil {
				t.Fatal(err)
			}
		}
		if n.Load() != before+1 {
			t.Errorf("%d exchanges for 100 releases", n.Load()-before)
		}
		release(t, acquired(t, "the writer", writer))
		if err := readers[0].Release(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("a second Release: %v", err)
		}
	})
}

// Within a client the order is that of arrival: readers that come after a writer wait for it.
func TestReadersAfterAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		mutexes := map[string]func(context.Context) (*holdfast.Lease, error){
			"as any":     c.RWMutex("x").Lock,
			"fair":       c.RWMutex("x", holdfast.Fair()).Lock,
			"of a mutex": c.Mutex("x").Lock,
		}
		for name, write := range mutexes {
			held := acquired(t, name, reads(t, c, 1)[0])
			writer := lockAsync(t, write)
			stillWaiting(t, "a writer", writer)
			after := reads(t, c, 3)
			stillWaiting(t, "a reader after the writer", after[0])
			release(t, held)
			w := acquired(t, "the writer", writer)
			stillWaiting(t, "a reader beside a writer", after[0])
			release(t, w)
			for _, ch := range after {
				release(t, acquired(t, "a reader", ch))
			}
		}
		// The same if the first readers wait, too.
		first := lock(t, other, "x")
		before := reads(t, c, 3)
		writer := lockAsync(t, c.RWMutex("x").Lock)
		stillWaiting(t, "a writer", writer)
		after := reads(t, c, 3)
		records(t, store, 1, 3)
		release(t, first)
		for _, ch := range before {
			release(t, acquired(t, "a reader", ch))
		}
		w := acquired(t, "the writer", writer)
		stillWaiting(t, "a reader after the writer", after[0])
		release(t, w)
		for _, ch := range after {
			release(t, acquired(t, "a reader", ch))
		}
		records(t, store, 0, 0)
	})
}

// Each reader is told that the grant is lost. The store gets it back when all have finished.
func TestSharedGrantIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		counting, n := counted(store)
		var mu sync.Mutex
		lost, ended := 0, 0
		c := client(t, counting, &holdfast.Config{Observer: &holdfast.Observer{
			Lost:       func(string, uint64, holdfast.Reason) { mu.Lock(); lost++; mu.Unlock() },
			LeaseEnded: func(holdfast.LeaseEnd) { mu.Lock(); ended++; mu.Unlock() },
		}})
		readers := share(t, store, c, 5)
		var ctxs []context.Context
		for _, r := range readers {
			ctxs = append(ctxs, r.Context(t.Context()))
		}
		release(t, readers[0])
		if err := store.Break(t.Context(), "x", readers[0].Token()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2) // a renewal
		synctest.Wait()
		for i, ctx := range ctxs[1:] {
			if !errors.Is(context.Cause(ctx), holdfast.ErrLost) || !errors.Is(readers[i+1].Err(), holdfast.ErrLost) {
				t.Errorf("reader %d: %v, %v; want ErrLost", i+1, context.Cause(ctx), readers[i+1].Err())
			}
		}
		mu.Lock()
		if lost != 4 || ended != 5 {
			t.Errorf("%d losses and %d ends were reported; want 4 and 5", lost, ended)
		}
		mu.Unlock()
		before := n.Load()
		for i, r := range readers[1:] {
			if n.Load() != before {
				t.Errorf("the grant goes back while %d readers have not finished", 4-i)
			}
			if err := r.Release(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Release of a lost lease: %v", err)
			}
			synctest.Wait()
		}
		if n.Load() == before {
			t.Error("the grant does not go back")
		}
		release(t, acquired(t, "a new reader", reads(t, c, 1)[0]))
	})
}

// A call that gives up leaves its place to the next reader. An error of the store is for all in line.
func TestReadersInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn, n := counted(store)
		c, other := client(t, conn, nil), client(t, store, nil)
		first := lock(t, other, "x")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { _, err := c.RWMutex("x").RLock(ctx); gaveUp <- err }()
		synctest.Wait()
		waiting := reads(t, c, 3)
		if w := c.Wanted(); len(w) != 4 {
			t.Errorf("%d calls wait; want 4", len(w))
		}
		before := n.Load()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("the call that gave up: %v", err)
		}
		synctest.Wait()
		records(t, store, 1, 1)
		if n.Load() != before {
			t.Errorf("%d exchanges to leave a place to the next call", n.Load()-before)
		}
		release(t, first)
		for _, ch := range waiting {
			release(t, acquired(t, "a reader", ch))
		}
		// A semaphore of that name is another kind: the asker is refused, and each of the line.
		permit := take(t)(other.Semaphore("y", 2).Acquire(t.Context(), 1))
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := c.RWMutex("y").RLock(t.Context()); !errors.Is(err, holdfast.ErrKind) {
					t.Errorf("a semaphore's name: %v", err)
				}
			})
		}
		all.Wait()
		release(t, permit)
	})
}

// Close gives the grant back, and reports the lease of each reader.
func TestCloseEndsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var mu sync.Mutex
		released := 0
		c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
			Released: func(_ string, _ uint64, _ time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				if released++; err != nil {
					t.Error(err)
				}
			},
		}})
		r := share(t, store, c, 3)[0]
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Release(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Release after Close: %v", err)
		}
		records(t, store, 0, 0)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if released != 3 {
			t.Errorf("%d releases were reported; want 3", released)
		}
	})
}

// Readers and writers of several clients exclude each other, whatever the calls do.
func TestReadersExclude(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newCrowd(seed)
			w.tries, w.reads = true, 3
			users := []user{
				{client(t, w, nil), nil}, {client(t, w, nil), nil},
				{client(t, w, &holdfast.Config{Passes: -1}), nil}, {client(t, w, nil), []holdfast.Option{holdfast.Fair()}},
			}
			if leases, shared := w.contend(t, users, 24, 20); leases < 200 || shared < 20 {
				t.Errorf("seed %d: only %d leases, %d of them under a grant of another", seed, leases, shared)
			}
			if r := must(w.store.Inspect(context.Background(), "x"))(t); len(r.Holders) != 0 {
				t.Errorf("seed %d: left at the store: %+v", seed, r.Holders)
			}
		})
	}
}

// Readers whose records would differ, and those with Fair, have grants of their own.
func TestReadersOnTheirOwn(t *testing.T) {
	for name, opts := range map[string][]holdfast.Option{
		"fair":         {holdfast.Fair()},
		"maximum hold": {holdfast.MaxHold(time.Hour)},
		"a note":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				c := client(t, store, nil)
				var all []*holdfast.Lease
				for i := range 4 {
					with := opts
					if with == nil {
						with = []holdfast.Option{holdfast.Note(fmt.Sprint("note ", i))}
					}
					all = append(all, acquired(t, "a reader", reads(t, c, 1, with...)[0]))
				}
				records(t, store, 4, 0)
				for _, l := range all {
					release(t, l)
				}
			})
		})
	}
}
