package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Sticky clients and others exclude each other, whatever the calls do and whichever answers and
// call-backs are lost. Tokens grow, and the store has given each of them out.
func TestStickyExcludes(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { stickyExcludes(t, seed) })
	}
}

func stickyExcludes(t *testing.T, seed uint64) {
	store := memlock.New()
	h := &hooks{Backend: store}
	lossy := &recalls{Backend: h}
	rng := rand.New(rand.NewPCG(seed, 2))
	var mu sync.Mutex
	chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) == 0 }
	pause := func(most time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(int64(most)))
	}
	h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
		time.Sleep(pause(time.Millisecond))
		r, err := next()
		if chance(30) {
			return driver.Reply{}, driver.ErrUncertain
		}
		time.Sleep(pause(time.Millisecond))
		return r, err
	}
	h.release = func(_ context.Context, _ driver.Hold, next func() error) error {
		time.Sleep(pause(time.Millisecond))
		err := next()
		if chance(30) {
			return driver.ErrUncertain
		}
		return err
	}
	lossy.set(func(name, id string, next func(name, id string)) {
		switch {
		case chance(10): // it is lost
		case chance(4): // it is late
			d := pause(20 * time.Millisecond)
			go func() {
				time.Sleep(d)
				next(name, id)
			}()
		default:
			next(name, id)
		}
	})
	const d = 30 * time.Millisecond
	users := []struct {
		c    *holdfast.Client
		opts []holdfast.Option
	}{
		{client(t, lossy, nil), []holdfast.Option{holdfast.Sticky(d)}},
		{client(t, lossy, &holdfast.Config{Passes: 5}), []holdfast.Option{holdfast.Sticky(d)}},
		{client(t, h, nil), nil},
		{client(t, h, &holdfast.Config{Passes: -1}), nil},
	}
	inside, last, n, local := 0, uint64(0), 0, 0
	grants := map[uint64]int{}
	var all sync.WaitGroup
	for i := range 16 {
		u := users[i%len(users)]
		all.Go(func() {
			for range 25 {
				ctx, cancel := t.Context(), func() {}
				if chance(4) {
					ctx, cancel = context.WithTimeout(ctx, pause(20*time.Millisecond))
				}
				m := u.c.Mutex("x", u.opts...)
				lock := m.Lock
				if chance(5) {
					lock = m.TryLock
				}
				l, err := lock(ctx)
				cancel()
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, holdfast.ErrHeld) &&
						!errors.Is(err, holdfast.ErrUncertain) {
						t.Error(err)
					}
					continue
				}
				r := must(store.Inspect(context.Background(), "x"))(t)
				mu.Lock()
				if inside++; inside != 1 || l.Token() <= last || l.Token() > r.Token {
					t.Errorf("seed %d: %d inside, token %d after %d; given out up to %d", seed, inside, l.Token(), last, r.Token)
				}
				last = max(last, l.Token())
				if n++; grants[l.GrantToken()] > 0 && len(u.opts) > 0 {
					local++
				}
				grants[l.GrantToken()]++
				mu.Unlock()
				if chance(3) {
					time.Sleep(pause(3 * time.Millisecond))
				}
				if chance(40) { // silent for longer than its lease would last without renewals
					time.Sleep(2 * ttl)
				}
				mu.Lock()
				inside--
				mu.Unlock()
				if chance(20) {
					err = l.ReleaseNow()
				} else {
					err = l.Release()
				}
				if err != nil && !errors.Is(err, holdfast.ErrUncertain) {
					t.Errorf("seed %d: Release = %v", seed, err)
				}
				if chance(3) {
					time.Sleep(pause(3 * d))
				}
			}
		})
	}
	all.Wait()
	if n < 100 || local < 10 {
		t.Errorf("seed %d: only %d leases, %d of them without an exchange", seed, n, local)
	}
	time.Sleep(2 * d)
	synctest.Wait()
	if r := must(store.Inspect(context.Background(), "x"))(t); len(r.Holders) != 0 {
		t.Errorf("seed %d: left at the store: %+v", seed, r.Holders)
	}
	for _, u := range users {
		if h, w := u.c.Held(), u.c.Wanted(); len(h) > 0 || len(w) > 0 {
			t.Errorf("left: %v, %v", h, w)
		}
	}
}
