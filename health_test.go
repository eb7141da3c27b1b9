package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Health, Held and Wanted tell what the client holds and waits for, the oldest first.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		if h := c.Health(); h != (holdfast.Health{Store: "memory", Answered: h.Answered}) || h.Answered != time.Now() {
			t.Errorf("a new client: %+v", h)
		}
		lock(t, other, "x")
		a := lock(t, c, "a")
		time.Sleep(time.Second)
		s, err := c.Semaphore("s", 5).Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wait := func(m *holdfast.Mutex) {
			wg.Go(func() {
				if _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		wait(c.Mutex("x"))
		wait(c.Mutex("x"))
		wait(c.Mutex("x", holdfast.Poll(time.Second, 1000))) // has no place in the queue
		h := c.Health()
		// The leases were taken 4 and 3 s ago, and renewed 2/3 s ago.
		left := ttl - ttl/10 - (4*time.Second - ttl/3)
		want := holdfast.Health{Store: "memory", Answered: h.Answered, Held: 2, Waiting: 3, HeldFor: 4 * time.Second,
			WaitedFor: 3 * time.Second, Left: left}
		if h != want || time.Since(h.Answered) > 4*time.Second-ttl/3 {
			t.Errorf("got  %+v\nwant %+v", h, want)
		}
		held := c.Held()
		if len(held) != 2 || held[0].Name != "a" || held[0].Token != a.Token() || held[0].Op != "lock" ||
			held[0].Left != a.Left() || time.Since(held[0].Since) != 4*time.Second || held[1].Name != "s" ||
			held[1].Mode != holdfast.ModePermits || held[1].Permits != 2 {
			t.Errorf("held %+v", held)
		}
		var ahead []int
		for _, w := range c.Wanted() {
			ahead = append(ahead, w.Ahead)
		}
		if len(ahead) != 3 || ahead[0] != 0 || ahead[1] != 1 || ahead[2] != -1 {
			t.Errorf("wanted %+v", c.Wanted())
		}
		cancel()
		wg.Wait()
		release(t, a)
		release(t, s)
		_ = c.Close(t.Context())
		if h := c.Health(); !errors.Is(h.Err, holdfast.ErrClosed) || h.Held+h.Waiting != 0 {
			t.Errorf("after Close: %+v", h)
		}
	})
}

// Health notices an outage at the first renewal that is not answered, before a lease is lost, and
// that it is over.
func TestHealthDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, nil)
		l := lock(t, c, "x")
		heal := conn.Cut()
		time.Sleep(ttl/3 + time.Second)
		if h := c.Health(); !errors.Is(h.Err, holdfast.ErrUncertain) || h.Held != 1 || l.Err() != nil {
			t.Errorf("a renewal was not answered for a second: %+v", h)
		}
		time.Sleep(ttl/3 + time.Second)
		if h := c.Health(); h.Err == nil || h.Held != 1 {
			t.Errorf("a renewal has failed: %+v", h)
		}
		time.Sleep(time.Second)
		if h := c.Health(); h.Err == nil || h.Held != 0 {
			t.Errorf("the lease has ended: %+v", h)
		}
		heal()
		time.Sleep(ttl)
		if h := c.Health(); h.Err != nil {
			t.Errorf("after the outage: %+v", h)
		}
	})
}

// A store that answers is heard of in every way to wait: in the queue, with a lease shorter than the TTL,
// and outside the queue.
func TestHealthOfWaiters(t *testing.T) {
	for what, opts := range map[string][]holdfast.Option{
		"queue": nil, "short lease": {holdfast.MaxHold(ttl / 5)}, "poll": {holdfast.Poll(time.Second, 1000)},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				c := client(t, store, nil)
				lock(t, client(t, store, nil), "x")
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _, _ = c.Mutex("x", opts...).Lock(ctx) }()
				for range 20 {
					time.Sleep(ttl / 3)
					if h := c.Health(); h.Err != nil || h.Waiting != 1 || time.Since(h.Answered) > 9*time.Second {
						t.Fatalf("%v ago: %+v", time.Since(h.Answered), h)
					}
				}
				cancel()
				<-done
			})
		})
	}
}

// A session that is over and cannot be opened again is no health.
func TestHealthWithoutASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mortal{Backend: memlock.New()}
		c := client(t, store, nil)
		store.down.Store(true)
		close(store.lost)
		time.Sleep(time.Second)
		if h := c.Health(); !errors.Is(h.Err, holdfast.ErrUnavailable) {
			t.Errorf("without a session: %+v", h)
		}
		store.down.Store(false)
		time.Sleep(2 * time.Second)
		if h := c.Health(); h.Err != nil || time.Since(h.Answered) > 2*time.Second {
			t.Errorf("with another session: %+v", h)
		}
	})
}

// forget is a function that takes a lock and does not release it.
func forget(t *testing.T, c *holdfast.Client) *holdfast.Lease { return lock(t, c, "forgotten") }

// The profiles have the stack of the function that took a lock and forgot it, and of one that waits.
func TestProfilesHaveTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProfiles()
		c := client(t, memlock.New(), &holdfast.Config{Profiles: p})
		l := forget(t, c)
		done := make(chan *holdfast.Lease)
		go func() { done <- forget(t, c) }()
		time.Sleep(time.Second)
		for _, profile := range []*pprof.Profile{p.Held, p.Waiting} {
			var text bytes.Buffer
			if err := profile.WriteTo(&text, 1); err != nil {
				t.Error(err)
			}
			if !strings.Contains(text.String(), "total 1\n") || !strings.Contains(text.String(), "holdfast_test.forget+") {
				t.Errorf("the profile lacks the caller:\n%s", &text)
			}
		}
		release(t, l)
		release(t, <-done)
		nothingLeft(t, c, p)
	})
}

// Opened and Closed come once each, in this order, and every exchange is reported under its method.
func TestExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		count := map[string]int{}
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, &holdfast.Config{Observer: &holdfast.Observer{
			Opened: func(*holdfast.Client) { order = append(order, "opened") },
			Closed: func(*holdfast.Client) { order = append(order, "closed") },
			Exchanged: func(x holdfast.Exchange) {
				mu.Lock()
				defer mu.Unlock()
				if count[x.Op]++; x.Err != nil {
					count[x.Op+" failed"]++
				}
				if x.Store != "memory" {
					t.Errorf("%+v", x)
				}
			},
		}})
		ctx := t.Context()
		l := lock(t, c, "x")
		time.Sleep(ttl) // three renewals
		release(t, l)
		rw, err := c.RWMutex("rw").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = rw.Downgrade()
		ticket, _, _ := rw.HandOff()
		if rw, err = c.Adopt(ctx, ticket); err != nil { // and Inspect
			t.Fatal(err)
		}
		time.Sleep(ttl / 3) // a renewal shows that the offer is gone
		_ = rw.ReleaseNow() // Cancel
		s, err := c.Semaphore("s", 3).Acquire(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.ReleasePermits(1)
		_ = c.Break(ctx, "s", s.Token(), "")
		_ = s.Release()
		_ = c.SetLimit(ctx, "s2", 2)
		latch := c.Latch("l")
		_, _ = latch.Set(ctx, 1)
		_, _ = latch.CountDown(ctx, "")
		_ = latch.Wait(ctx)
		_ = latch.Remove(ctx) // and Inspect
		for range c.Locks(ctx, "") {
		}
		heal := conn.Cut()
		_, _ = c.Inspect(ctx, "x")
		heal()
		_ = c.Close(ctx)
		synctest.Wait()
		want := map[string]int{"open": 1, "acquire": 3, "renew": 4, "downgrade": 1, "adopt": 1, "inspect": 3,
			"inspect failed": 1, "cancel": 1, "reduce": 1, "break": 1, "set limit": 1, "set count": 1, "count down": 1,
			"await": 1, "remove latch": 1, "add history": 1, "history": 5, "list": 1, "release": 2, "release failed": 1,
			"close": 1}
		for op, n := range want {
			if count[op] != n {
				t.Errorf("%d exchanges %q, want %d", count[op], op, n)
			}
			delete(count, op)
		}
		if len(count) > 0 {
			t.Errorf("further exchanges: %v", count)
		}
		if strings.Join(order, " ") != "opened closed" {
			t.Errorf("%q", order)
		}
	})
}

// An Observer that blocks in a field that the client's own goroutines call delays neither a Lock nor a
// Release nor a renewal. Health counts what it missed.
func TestBlockedObserverDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var renewals atomic.Int64
		store := &hooks{Backend: memlock.New(), renew: func(_ context.Context, _ []driver.Hold,
			next func() ([]driver.Change, error)) ([]driver.Change, error) {
			renewals.Add(1)
			return next()
		}}
		c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
			Opened:       func(*holdfast.Client) { <-stuck },
			RenewalEnded: func(holdfast.RenewalEnd) { <-stuck },
			Exchanged:    func(holdfast.Exchange) { <-stuck },
		}})
		l := lock(t, c, "x")
		began := time.Now()
		for range 3000 {
			release(t, lock(t, c, "y"))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("three thousand locks took %v", took)
		}
		time.Sleep(10 * ttl)
		if err := l.Err(); err != nil || renewals.Load() < 30 {
			t.Errorf("%d renewals, %v", renewals.Load(), err)
		}
		if h := c.Health(); h.Dropped == 0 || h.Err != nil {
			t.Errorf("%+v", h)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		began = time.Now()
		_ = c.Close(ctx)
		if took := time.Since(began); took > time.Second+100*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		close(stuck)
	})
}

// A Break is reported with what it returned.
func TestBreakEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []holdfast.BreakEnd
		c := client(t, memlock.New(), &holdfast.Config{Observer: &holdfast.Observer{
			BreakEnded: func(b holdfast.BreakEnd) { all = append(all, b) },
		}})
		l := lock(t, c, "x")
		if err := breakLock(c, "x", l.Token()); err != nil {
			t.Error(err)
		}
		err := breakLock(c, "x", l.Token())
		if !errors.Is(err, holdfast.ErrGone) {
			t.Error(err)
		}
		if len(all) != 2 || all[0] != (holdfast.BreakEnd{Store: "memory", Name: "x", Token: l.Token()}) || all[1].Err != err {
			t.Errorf("%+v", all)
		}
		_ = l.Release()
	})
}
