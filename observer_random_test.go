package holdfast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Many callers do at random what callers can do, while an operator breaks locks and the network fails:
// the numbers of calls, waits and leases that ended agree in the end.
func TestEndsAddUp(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			var e ends
			store := memlock.New()
			conn := drivertest.Faulty(store)
			profiles := newProfiles()
			c := client(t, conn, &holdfast.Config{Observer: e.observer(), Profiles: profiles})
			other := client(t, store, nil)
			var calls, grants atomic.Int64
			stop := make(chan struct{})
			var wg, operators sync.WaitGroup
			for i := range uint64(12) {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, i))
					for range 60 {
						calls.Add(1)
						if l := takeAtRandom(t.Context(), c, r); l != nil {
							grants.Add(1)
							asked, adopted := endAtRandom(t.Context(), c, l, r)
							calls.Add(asked)
							grants.Add(adopted)
						}
					}
				})
			}
			operators.Go(func() { disturb(t.Context(), seed, conn.Cut, other, stop) })
			wg.Wait()
			close(stop)
			operators.Wait()
			time.Sleep(3 * ttl) // renewals notice what was broken and adopted
			_ = c.Close(t.Context())
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			granted, outcomes, ids := 0, map[holdfast.Outcome]int{}, map[string]int{}
			for _, w := range e.waits {
				if outcomes[w.Outcome]++; w.Outcome == holdfast.OutcomeGranted {
					granted++
					ids[w.ID]++
				}
				if (w.Err == nil) != (w.Outcome == holdfast.OutcomeGranted) || (w.Token != 0) != (w.Err == nil) || w.Waited < 0 {
					t.Errorf("%+v", w)
				}
			}
			for _, l := range e.leases {
				ids[l.ID]--
			}
			for id, n := range ids {
				if n != 0 {
					t.Errorf("the lease %s was granted %+d times more often than it ended", id, n)
				}
			}
			if len(e.waits) != int(calls.Load()) || granted != int(grants.Load()) || len(e.leases) != granted {
				t.Errorf("%d calls, %d grants: %d waits ended, %d of them granted; %d leases ended", calls.Load(), grants.Load(),
					len(e.waits), granted, len(e.leases))
			}
			if h := c.Health(); h.Dropped != 0 {
				t.Errorf("%d calls of the Observer were dropped", h.Dropped)
			}
			t.Logf("seed %d: %v", seed, outcomes)
			nothingLeft(t, c, profiles)
		})
	}
}

// takeAtRandom makes one call for a lock; nil if that has failed.
func takeAtRandom(ctx context.Context, c *holdfast.Client, r *rand.Rand) *holdfast.Lease {
	n := r.IntN(4)
	var opts []holdfast.Option
	switch r.IntN(6) {
	case 0:
		opts = append(opts, holdfast.WaitAtMost(time.Duration(1+r.Int64N(int64(3*time.Second)))))
	case 1:
		opts = append(opts, holdfast.Poll(100*time.Millisecond, 1+r.IntN(5)))
	case 2:
		opts = append(opts, holdfast.MaxHold(time.Duration(1+r.Int64N(int64(3*time.Second)))))
	}
	if r.IntN(3) == 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(3*time.Second))))
		defer cancel()
		ctx = limited
	}
	var l *holdfast.Lease
	switch m, rw, s := c.Mutex(fmt.Sprint("m", n), opts...), c.RWMutex(fmt.Sprint("m", n), opts...),
		c.Semaphore(fmt.Sprint("s", n), 3, opts...); r.IntN(8) {
	case 0:
		l, _ = m.TryLock(ctx)
	case 1:
		l, _ = rw.RLock(ctx)
	case 2:
		l, _ = rw.Lock(ctx)
	case 3:
		l, _ = s.Acquire(ctx, 1+r.IntN(3))
	case 4:
		l, _ = s.TryAcquire(ctx, 1)
	case 5:
		l, _ = c.Semaphore(fmt.Sprint("m", n), 3, opts...).Acquire(ctx, 1) // of another kind, if it is in use
	default:
		l, _ = m.Lock(ctx)
	}
	return l
}

// endAtRandom works under l and ends it. It returns how often it has asked to adopt it, and has.
func endAtRandom(ctx context.Context, c *holdfast.Client, l *holdfast.Lease, r *rand.Rand) (asked, adopted int64) {
	time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	switch r.IntN(6) {
	case 0:
		_ = l.ReleaseNow()
	case 1:
		_ = l.Downgrade()
		_ = l.ReleasePermits(1)
		_ = l.Release()
	case 2:
		_ = l.Extend(ttl)
		_ = l.Err()
		_ = l.Release()
	case 3:
		ticket, _, err := l.HandOff()
		time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		if err == nil && r.IntN(2) == 0 {
			if asked++; r.IntN(4) == 0 {
				_ = l.Release() // nobody can adopt it
			}
			if again, err := c.Adopt(ctx, ticket); err == nil {
				adopted++
				time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
				_ = again.Release()
			}
		}
		_ = l.Release()
	default:
		_ = l.Release()
		_ = l.Release()
	}
	return asked, adopted
}

// disturb breaks grants by operator and cuts the network, at random, until stop is closed.
func disturb(ctx context.Context, seed uint64, cut func() (heal func()), operator *holdfast.Client,
	stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(seed, 99))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.Int64N(int64(2 * time.Second)))):
		}
		if r.IntN(10) == 0 {
			heal := cut()
			time.Sleep(time.Duration(r.Int64N(int64(15 * time.Second))))
			heal()
			continue
		}
		for record := range operator.Locks(ctx, "") {
			if len(record.Holders) > 0 && r.IntN(3) == 0 {
				_ = breakLock(operator, record.Name, record.Holders[0].Token)
			}
		}
	}
}
