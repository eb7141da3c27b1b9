package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// crowd is a store in memory that is slow and loses answers at random, and the calls of several clients
// that want one name.
type crowd struct {
	*hooks
	store *memlock.Store
	seed  uint64
	tries bool          // some calls do not wait
	reads int           // all but one in so many read; 0: none
	rest  time.Duration // the longest pause of a call between two leases

	mu  sync.Mutex
	rng *rand.Rand
}

// user is a client of a crowd, with its options.
type user struct {
	c    *holdfast.Client
	opts []holdfast.Option
}

func newCrowd(seed uint64) *crowd {
	store := memlock.New()
	w := &crowd{hooks: &hooks{Backend: store}, store: store, seed: seed, rng: rand.New(rand.NewPCG(seed, 1))}
	w.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
		time.Sleep(w.pause(time.Millisecond))
		r, err := next()
		if w.chance(30) {
			return driver.Reply{}, driver.ErrUncertain
		}
		time.Sleep(w.pause(time.Millisecond))
		return r, err
	}
	w.release = func(_ context.Context, _ driver.Hold, next func() error) error {
		time.Sleep(w.pause(time.Millisecond))
		err := next()
		if w.chance(30) {
			return driver.ErrUncertain
		}
		return err
	}
	return w
}

// bound makes the store give one token in place of a block now and then.
func (w *crowd) bound(t *testing.T) {
	w.Backend = newBounded(t, w.store, func() bool { return !w.chance(4) })
}

// chance is true one time in n.
func (w *crowd) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n) == 0
}

func (w *crowd) pause(most time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(most)))
}

// contend lets calls take turns with the users, and each call lock the name so many times. Whatever they
// do, one has the lock, or readers have it, tokens grow, and the store has given each of them out. It
// returns the number of leases, and how many of them were not the first of their grant.
func (w *crowd) contend(t *testing.T, users []user, calls, times int) (leases, passed int) {
	t.Helper()
	var mu sync.Mutex
	inside, readers, last, lastWrite, grants := 0, 0, uint64(0), uint64(0), map[uint64]bool{}
	round := func(u user) {
		ctx, cancel := t.Context(), func() {}
		if w.chance(4) {
			ctx, cancel = context.WithTimeout(ctx, w.pause(20*time.Millisecond))
		}
		m := u.c.Mutex("x", u.opts...)
		reads, lock, try := w.reads > 0 && !w.chance(w.reads), m.Lock, m.TryLock
		if w.reads > 0 {
			rw := u.c.RWMutex("x", u.opts...)
			if lock, try = rw.Lock, rw.TryLock; reads {
				lock, try = rw.RLock, rw.TryRLock
			}
		}
		refused := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
		if w.tries && w.chance(5) {
			lock, refused = try, func(err error) bool {
				return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, holdfast.ErrHeld) ||
					errors.Is(err, holdfast.ErrUncertain)
			}
		}
		l, err := lock(ctx)
		cancel()
		if err != nil {
			if !refused(err) {
				t.Error(err)
			}
			return
		}
		r := must(w.store.Inspect(context.Background(), "x"))(t)
		mu.Lock()
		inside++
		before := last // a writer's token is the largest so far; a reader's is larger than those of writers
		if reads {
			readers++
			before = lastWrite
		} else {
			lastWrite = l.Token()
		}
		if inside != max(readers, 1) || l.Token() <= before || l.Token() > r.Token {
			t.Errorf("seed %d: %d inside, %d of them read, token %d after %d; given out up to %d", w.seed, inside, readers,
				l.Token(), before, r.Token)
		}
		last = max(last, l.Token())
		if w.Kinds().Bounded && l.GrantToken()%2 == 1 && l.Token() != l.GrantToken() {
			t.Errorf("seed %d: token %d of the grant %d, which has one", w.seed, l.Token(), l.GrantToken())
		}
		if leases++; grants[l.GrantToken()] {
			passed++
		}
		grants[l.GrantToken()] = true
		mu.Unlock()
		if w.chance(3) {
			time.Sleep(w.pause(3 * time.Millisecond))
		}
		if w.chance(20) { // silent for longer than its lease would last without renewals
			time.Sleep(2 * ttl)
		}
		mu.Lock()
		if inside--; reads {
			readers--
		}
		mu.Unlock()
		if w.chance(20) {
			err = l.ReleaseNow()
		} else {
			err = l.Release()
		}
		if err != nil && !errors.Is(err, holdfast.ErrUncertain) {
			t.Errorf("seed %d: Release = %v", w.seed, err)
		}
		if w.rest > 0 && w.chance(3) {
			time.Sleep(w.pause(w.rest))
		}
	}
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			for range times {
				round(users[i%len(users)])
			}
		})
	}
	all.Wait()
	for _, u := range users {
		if h, wanted := u.c.Held(), u.c.Wanted(); len(h) > 0 || len(wanted) > 0 {
			t.Errorf("seed %d: left: %v, %v", w.seed, h, wanted)
		}
	}
	return leases, passed
}
