package holdfast

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// After a sleep a client without leases has not looked at the clock. The first lease is a whole one.
func TestFirstLeaseAfterASleep(t *testing.T) {
	takes := map[string]func(*testing.T, *Client) (*Lease, error){
		"Lock":    func(t *testing.T, c *Client) (*Lease, error) { return c.Mutex("x").Lock(t.Context()) },
		"TryLock": func(t *testing.T, c *Client) (*Lease, error) { return c.Mutex("x").TryLock(t.Context()) },
		"RLock":   func(t *testing.T, c *Client) (*Lease, error) { return c.RWMutex("x").RLock(t.Context()) },
		"Fair":    func(t *testing.T, c *Client) (*Lease, error) { return c.Mutex("x", Fair()).Lock(t.Context()) },
		"Sticky": func(t *testing.T, c *Client) (*Lease, error) {
			return c.Mutex("x", Sticky(time.Hour)).Lock(t.Context())
		},
		"Acquire": func(t *testing.T, c *Client) (*Lease, error) { return c.Semaphore("x", 2).Acquire(t.Context(), 1) },
	}
	for name, take := range takes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, slept := sleeper(t)
				time.Sleep(time.Second)
				slept.Add(int64(time.Hour))
				l, err := take(t, c)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the watcher has looked at the new lease
				if left := l.Left(); left < 6*time.Second {
					t.Errorf("%v left, %v", left, l.Err())
				}
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The machine sleeps while a grant is on its way, and the store gives the lock away. The call asks again.
func TestSleepBeforeAGrantArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		var first driver.Record
		s.acquired = func() {
			if first.Token != 0 {
				return
			}
			s.slept.Add(int64(time.Hour))
			r, err := s.store.Inspect(t.Context(), "y")
			if err == nil {
				first, err = r, s.store.Break(t.Context(), "y", r.Token) // as if it had expired
			}
			if err != nil {
				t.Error(err)
			}
		}
		l, err := s.c.Mutex("y").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l.grantToken <= first.Token || l.Err() != nil {
			t.Errorf("the lease of token %d, %v; want one after %d", l.grantToken, l.Err(), first.Token)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A store that cannot be reached when the machine goes on is given the usual time to answer.
func TestSilenceAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		s.c.calledBack("x", s.record().Holders[0].ID) // a client without leases does not look at the clock
		synctest.Wait()
		s.fails.Store(true)
		s.slept.Add(int64(time.Hour))
		time.AfterFunc(s.c.TTL()/2, func() { s.fails.Store(false) }) // a renewal has looked at the clock
		l, err := s.c.Mutex("y").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// An offer that is adopted after a sleep is not given up because of the time that has passed.
func TestAdoptAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		giver, err := New(t.Context(), s.store, &Config{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		given, err := giver.Mutex("y").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ticket, _, err := given.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		s.c.calledBack("x", s.record().Holders[0].ID) // a client without leases does not look at the clock
		synctest.Wait()
		s.slept.Add(int64(time.Hour))
		l, err := s.c.Adopt(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l.Err() != nil {
			t.Error(l.Err())
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		if err := giver.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The time that the machine has slept is no time that a call has waited or held.
func TestObservedTimesAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		var waited, held []time.Duration
		store := memlock.New()
		o := &Observer{
			Acquired:   func(_ string, _ uint64, d time.Duration) { waited = append(waited, d) },
			LeaseEnded: func(e LeaseEnd) { held = append(held, e.Held) },
		}
		c, err := newClient(t.Context(), store, &Config{TTL: 10 * time.Second, Observer: o}, func() time.Duration {
			return time.Duration(slept.Load())
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // at first nobody has noticed the sleep
			slept.Add(int64(time.Hour))
			l, err := c.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Break(t.Context(), "x", l.grantToken); err != nil {
				t.Fatal(err)
			}
			<-l.Done() // a renewal
			time.Sleep(time.Second)
			synctest.Wait()
		}
		for i := range waited {
			if waited[i] != 0 || len(held) != len(waited) || held[i] > c.TTL() {
				t.Errorf("waited %v, held %v", waited, held)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
