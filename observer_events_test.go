package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// What an event says is what happened: how long, behind whom, for how much.
func TestWhatEndsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		store := memlock.New()
		c, other := client(t, store, &holdfast.Config{Observer: e.observer()}), client(t, store, nil)
		held := lock(t, other, "x", holdfast.Note("a deploy"))
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { release(t, held) })
		l := lock(t, c, "x")
		time.Sleep(5 * time.Second)
		release(t, l)
		w, end := e.waits[0], e.leases[0]
		if w.Store != "memory" || w.Err != nil || w.Token != l.Token() || w.Permits != 1 || !w.Began.Equal(began) ||
			w.Waited != 3*time.Second || !w.Queued.Equal(began) || w.Holder == nil || w.Holder.Note != "a deploy" {
			t.Errorf("the wait: %+v, holder %+v", w, w.Holder)
		}
		if end.Store != "memory" || end.Op != "lock" || end.Token != l.Token() || end.ID != w.ID || w.ID == "" ||
			end.Held != 5*time.Second ||
			end.Err != nil || end.Lost() {
			t.Errorf("the lease: %+v", end)
		}
		lock(t, other, "y", holdfast.Note("another"))
		_, err := c.Mutex("y").TryLock(t.Context())
		if w := e.waits[1]; w.Err != err || w.Holder == nil || w.Holder.Note != "another" || !w.Queued.IsZero() {
			t.Errorf("a call that does not wait: %+v", w)
		}
	})
}

// An Observer that panics, or ends the goroutine, in any of its fields: each wait and each lease is
// still reported once, and nothing is left.
func TestEndsOfAnObserverThatPanics(t *testing.T) {
	for _, how := range []string{"panic", "Goexit"} {
		for _, field := range []string{"Waiting", "Acquired", "WaitEnded", "Released", "LeaseEnded"} {
			t.Run(field+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var e ends
					o := e.observer()
					fail := func() {
						if how == "panic" {
							panic("of an observer")
						}
						runtime.Goexit()
					}
					waitEnded, leaseEnded := o.WaitEnded, o.LeaseEnded
					switch field {
					case "Waiting":
						o.Waiting = func(holdfast.Waiting) { fail() }
					case "Acquired":
						o.Acquired = func(string, uint64, time.Duration) { fail() }
					case "WaitEnded":
						o.WaitEnded = func(ctx context.Context, w holdfast.WaitEnd) { waitEnded(ctx, w); fail() }
					case "Released":
						o.Released = func(string, uint64, time.Duration, error) { fail() }
					case "LeaseEnded":
						o.LeaseEnded = func(l holdfast.LeaseEnd) { leaseEnded(l); fail() }
					}
					store := memlock.New()
					profiles := newProfiles()
					c := client(t, store, &holdfast.Config{Observer: o, Profiles: profiles})
					held := lock(t, client(t, store, nil), "x")
					time.AfterFunc(time.Second, func() { _ = held.Release() })
					for range 2 { // the second call does not wait
						done := make(chan struct{})
						go func() {
							defer close(done)
							defer func() { _ = recover() }()
							if l, err := c.Mutex("x").Lock(t.Context()); err == nil {
								_ = l.Release()
							}
						}()
						<-done
						time.Sleep(time.Second)
					}
					waits, leases := e.lines()
					granted := 0
					for _, w := range waits {
						if strings.HasSuffix(w, "granted") {
							granted++
						}
					}
					if len(waits) != 2 || granted != len(leases) || field != "Waiting" && granted != 2 {
						t.Errorf("waits %q, leases %q", waits, leases)
					}
					nothingLeft(t, c, profiles)
				})
			})
		}
	}
}

// An Observer may call the client and its leases.
func TestObserverThatCallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var c *holdfast.Client
		closed := make(chan struct{})
		profiles := newProfiles()
		c = client(t, store, &holdfast.Config{Profiles: profiles, Observer: &holdfast.Observer{
			Opened: func(c *holdfast.Client) { _ = c.Health() },
			WaitEnded: func(ctx context.Context, w holdfast.WaitEnd) {
				if w.Name == "x" && len(c.Held()) != 1 {
					t.Errorf("WaitEnded sees %+v", c.Held())
				}
				if w.Name == "x" { // another lock, from within
					release(t, lock(t, c, "y"))
				}
			},
			Lost: func(string, uint64, holdfast.Reason) {
				_ = c.Close(context.Background())
				close(closed)
			},
		}})
		l := lock(t, c, "x", holdfast.MaxHold(time.Second))
		<-l.Done()
		began := time.Now()
		<-closed
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close, called by the Observer, took %v", took)
		}
		nothingLeft(t, c, profiles)
	})
}

// The margin is the time that the oldest proof had left when the answer came.
func TestMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Int64
		var ends []holdfast.RenewalEnd
		var mu sync.Mutex
		store := &hooks{Backend: memlock.New(), renew: func(_ context.Context, _ []driver.Hold,
			next func() ([]driver.Change, error)) ([]driver.Change, error) {
			time.Sleep(time.Duration(slow.Load()))
			if slow.Load() < 0 {
				return nil, errStore
			}
			return next()
		}}
		c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{RenewalEnded: func(e holdfast.RenewalEnd) {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, e)
		}}})
		a, b := lock(t, c, "a"), lock(t, c, "b")
		time.Sleep(ttl/3 + time.Millisecond)
		slow.Store(int64(time.Second))
		time.Sleep(ttl / 3)
		release(t, b)
		time.Sleep(2 * time.Second)
		slow.Store(-1)
		time.Sleep(ttl / 3)
		mu.Lock()
		defer mu.Unlock()
		usual := ttl - ttl/10 - ttl/3
		if len(ends) < 3 {
			t.Fatalf("%d renewals: %+v", len(ends), ends)
		}
		if e := ends[0]; e.Number != 2 || e.Leases != 2 || e.Left != usual || e.Took != 0 || e.Err != nil ||
			e.Store != "memory" {
			t.Errorf("a renewal in time: %+v; want 2 leases with %v left", e, usual)
		}
		if e := ends[1]; e.Number != 2 || e.Leases != 1 || e.Left != usual-time.Second || e.Took != time.Second {
			t.Errorf("a slow renewal: %+v; want 1 lease with %v left", e, usual-time.Second)
		}
		if e := ends[2]; e.Leases != 0 || e.Left != 0 || !errors.Is(e.Err, errStore) {
			t.Errorf("a renewal that failed: %+v", e)
		}
		slow.Store(0)
		release(t, a)
	})
}

// An Observer may close the client in any of its fields: the call under way ends, and nothing is left.
func TestObserverThatCloses(t *testing.T) {
	for _, field := range []string{"Waiting", "Acquired", "WaitEnded", "Released", "LeaseEnded", "Exchanged", "Opened"} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e ends
				o := e.observer()
				var c *holdfast.Client
				ready := make(chan struct{})
				var once sync.Once
				shut := func() { once.Do(func() { <-ready; _ = c.Close(context.Background()) }) }
				waitEnded, leaseEnded := o.WaitEnded, o.LeaseEnded
				switch field {
				case "Waiting":
					o.Waiting = func(holdfast.Waiting) { shut() }
				case "Acquired":
					o.Acquired = func(string, uint64, time.Duration) { shut() }
				case "WaitEnded":
					o.WaitEnded = func(ctx context.Context, w holdfast.WaitEnd) { waitEnded(ctx, w); shut() }
				case "Released":
					o.Released = func(string, uint64, time.Duration, error) { shut() }
				case "LeaseEnded":
					o.LeaseEnded = func(l holdfast.LeaseEnd) { leaseEnded(l); shut() }
				case "Exchanged":
					o.Exchanged = func(holdfast.Exchange) { shut() }
				case "Opened":
					o.Opened = func(*holdfast.Client) { shut() }
				}
				store := memlock.New()
				held := lock(t, client(t, store, nil), "x")
				time.AfterFunc(time.Second, func() { _ = held.Release() })
				profiles := newProfiles()
				c = client(t, store, &holdfast.Config{Observer: o, Profiles: profiles})
				close(ready)
				if l, err := c.Mutex("x").Lock(t.Context()); err == nil {
					_ = l.Release()
				} else if !errors.Is(err, holdfast.ErrClosed) {
					t.Error(err)
				}
				time.Sleep(2 * time.Second)
				waits, leases := e.lines()
				if granted := len(waits) == 1 && strings.HasSuffix(waits[0], "granted"); len(waits) != 1 ||
					granted != (len(leases) == 1) {
					t.Errorf("waits %q, leases %q", waits, leases)
				}
				if h := c.Health(); !errors.Is(h.Err, holdfast.ErrClosed) {
					t.Errorf("%+v", h)
				}
				nothingLeft(t, c, profiles)
			})
		})
	}
}

// When the store ends the session, all leases end at once. None is left out of what is reported.
func TestEndsOfManyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		var e ends
		store := &mortal{Backend: memlock.New()}
		profiles := newProfiles()
		c := client(t, store, &holdfast.Config{Observer: e.observer(), Profiles: profiles})
		for i := range n {
			lock(t, c, strconv.Itoa(i))
		}
		store.down.Store(true)
		close(store.lost)
		synctest.Wait()
		store.down.Store(false)
		if _, leases := e.lines(); len(leases) != n || !strings.HasSuffix(leases[0], "session") {
			t.Errorf("%d of %d losses were reported; %d calls were dropped", len(leases), n, c.Health().Dropped)
		}
		nothingLeft(t, c, profiles)
	})
}
