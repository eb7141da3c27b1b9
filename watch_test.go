package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// lines is a log whose Handle is the function of a test.
type lines struct {
	slog.Handler
	handle func(slog.Record)
}

func logging(handle func(slog.Record)) *slog.Logger {
	return slog.New(&lines{slog.DiscardHandler, handle})
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.handle(r)
	return nil
}

// attr returns an attribute of a line, as text.
func attr(r slog.Record, key string) (text string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			text = a.Value.String()
		}
		return true
	})
	return text
}

// breakable returns a store whose session the test can end, and which opens another only when the
// test allows it.
func breakable(store driver.Backend) (h *hooks, end func(), reopen chan struct{}) {
	lost, reopen := make(chan struct{}), make(chan struct{})
	opened := 0
	h = &hooks{Backend: store}
	h.open = func() <-chan struct{} {
		if opened++; opened == 1 {
			return lost
		}
		return nil
	}
	h.opening = func(ctx context.Context) error {
		if opened == 0 {
			return nil
		}
		select {
		case <-reopen:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return h, sync.OnceFunc(func() { close(lost) }), reopen
}

// The session ends while a grant is on its way, and no other session can be opened yet. The grant
// must not become a lease: nobody would renew it, and the store may give the lock away.
func TestGrantOfASessionThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h, end, reopen := breakable(store)
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			reply, err := next()
			end()
			synctest.Wait()
			return reply, err
		}
		h.forgets = true
		c := client(t, h, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if l, err := c.Mutex("x").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock under a session that is over: %v, %v", l, err)
		}
		if _, err := c.Mutex("y").TryLock(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("TryLock under a session that is over: %v", err)
		}
		close(reopen)
		time.Sleep(time.Second)
		release(t, lock(t, c, "z"))
	})
}

// The same for an adoption, and for the hand-off of a lease whose session is over before the
// watcher has noticed.
func TestHandOffOfASessionThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h, end, _ := breakable(store)
		h.adopt = func(next func() error) error {
			err := next()
			end()
			return err
		}
		giver, taker := client(t, store, nil), client(t, h, nil)
		ticket, _, err := lock(t, giver, "x").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		mine := lock(t, taker, "mine")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if l, err := taker.Adopt(ctx, ticket); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Adopt under a session that is over: %v, %v", l, err)
		}
		_, _, err = mine.HandOff()
		isLost(t, err, holdfast.ReasonSession)
		isLost(t, mine.Err(), holdfast.ReasonSession)
	})
}

// A grant that arrives while the store ends the session becomes a lease that ends, or none.
func TestSessionEndsDuringGrants(t *testing.T) {
	for range 200 {
		store := memlock.New()
		lost := make(chan struct{})
		opened := 0
		h := &hooks{Backend: store}
		h.open = func() <-chan struct{} {
			if opened++; opened == 1 {
				return lost
			}
			return nil
		}
		h.opening = func(ctx context.Context) error {
			if opened == 0 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		c := client(t, h, nil)
		got := make(chan *holdfast.Lease, 8)
		for i := range 8 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				l, _ := c.Mutex(fmt.Sprint(i)).TryLock(ctx)
				got <- l
			}()
		}
		close(lost)
		for range 8 {
			if l := <-got; l != nil {
				<-l.Done()
				isLost(t, l.Err(), holdfast.ReasonSession)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// bad returns Loggers and Observers that panic or block for as long as the test lasts.
func bad(stuck chan struct{}) map[string]holdfast.Config {
	harm := map[string]func(){
		"blocks": func() { <-stuck },
		"panics": func() { panic("of a logger, or of an observer") },
	}
	cfgs := map[string]holdfast.Config{}
	for how, f := range harm {
		cfgs["a log that "+how] = holdfast.Config{Logger: logging(func(slog.Record) { f() })}
		cfgs["an observer that "+how] = holdfast.Config{Observer: &holdfast.Observer{
			Lost:    func(string, uint64, holdfast.Reason) { f() },
			Renewed: func(int, time.Duration, error) { f() },
		}}
	}
	return cfgs
}

// All leases end in time, and Close returns, whatever a Logger or an Observer does.
func TestLeasesEndWithABlockedLog(t *testing.T) {
	for _, what := range []string{"a log that blocks", "a log that panics", "an observer that blocks",
		"an observer that panics"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck := make(chan struct{})
				defer close(stuck)
				cfg := bad(stuck)[what]
				conn := drivertest.Faulty(memlock.New())
				c := client(t, conn, &cfg)
				start := time.Now()
				var ctxs []context.Context
				for i := range 3 {
					ctxs = append(ctxs, lock(t, c, fmt.Sprint(i)).Context(t.Context()))
				}
				conn.Cut()
				time.Sleep(ttl)
				for i, ctx := range ctxs {
					if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
						t.Errorf("lease %d, %v after it was granted: %v", i, time.Since(start), context.Cause(ctx))
					}
				}
				closing, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				within(t, "Close", 0, 150*time.Millisecond, func() { _ = c.Close(closing) })
			})
		})
	}
}

// A renewal that fails once is followed by others, even if the Logger or the Observer misbehaves.
func TestRenewalWithABlockedLog(t *testing.T) {
	for _, what := range []string{"a log that blocks", "a log that panics", "an observer that blocks",
		"an observer that panics"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck := make(chan struct{})
				defer close(stuck)
				var calls atomic.Int32
				h := &hooks{Backend: memlock.New()}
				h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
					if calls.Add(1) == 1 {
						return nil, errStore
					}
					return next()
				}
				cfg := bad(stuck)[what]
				c := client(t, h, &cfg)
				l := lock(t, c, "x")
				time.Sleep(10 * time.Minute)
				if err := l.Err(); err != nil {
					t.Error(err)
				}
				release(t, l)
				within(t, "Close", 0, 2*time.Second, func() {
					if err := c.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		})
	}
}

// The next line of a slow log has the number of calls that were dropped.
func TestLogCountsDroppedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		slow := make(chan struct{})
		var mu sync.Mutex
		logged, dropped := 0, 0
		c := client(t, memlock.New(), &holdfast.Config{Logger: logging(func(r slog.Record) {
			<-slow
			mu.Lock()
			defer mu.Unlock()
			logged++
			if text := attr(r, "dropped"); text != "" {
				k := 0
				if _, err := fmt.Sscan(text, &k); err != nil {
					t.Error(err)
				}
				dropped += k
			}
		})})
		for i := range n {
			lock(t, c, fmt.Sprint(i), holdfast.MaxHold(time.Second))
		}
		time.Sleep(2 * time.Second)
		close(slow)
		time.Sleep(time.Second)
		lock(t, c, "one more", holdfast.MaxHold(time.Second))
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if logged+dropped != n+1 || dropped == 0 {
			t.Errorf("%d losses in the log, %d dropped; %d leases were lost", logged, dropped, n+1)
		}
	})
}

// stubborn is a context of the application whose methods block when they are called late.
type stubborn struct {
	context.Context
	stuck chan struct{}
	late  atomic.Bool
}

func (c *stubborn) Value(key any) any {
	if c.late.Load() {
		<-c.stuck
	}
	return c.Context.Value(key)
}

// A context of the application that blocks during a loss delays no other lease, nor the Done of its
// own.
func TestLossWithABlockingContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, nil)
		bad := &stubborn{Context: t.Context(), stuck: make(chan struct{})}
		defer close(bad.stuck)
		var leases []*holdfast.Lease
		var ctxs []context.Context
		for i := range 10 {
			l := lock(t, c, fmt.Sprint(i))
			leases = append(leases, l)
			if i%2 == 0 {
				l.Context(bad)
			} else {
				ctxs = append(ctxs, l.Context(t.Context()))
			}
		}
		conn.Cut()
		bad.late.Store(true)
		time.Sleep(9*time.Second + time.Millisecond)
		for i, l := range leases {
			select {
			case <-l.Done():
			default:
				t.Errorf("lease %d is not done after its time", i)
			}
		}
		for _, ctx := range ctxs {
			if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
				t.Errorf("a context after the time of its lease: %v", context.Cause(ctx))
			}
		}
	})
}

// Close ends all leases at once, however many there are and however long the store takes.
func TestCloseEndsAllLeasesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hooks{Backend: memlock.New()}
		h.release = func(ctx context.Context, _ driver.Hold, _ func() error) error {
			<-ctx.Done()
			return unanswered(ctx)
		}
		c := client(t, h, nil)
		var leases []*holdfast.Lease
		for i := range 100 {
			leases = append(leases, lock(t, c, fmt.Sprint(i)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		time.AfterFunc(time.Millisecond, func() {
			for i, l := range leases {
				select {
				case <-l.Done():
				default:
					t.Errorf("lease %d has not ended", i)
				}
			}
		})
		within(t, "Close", 0, 150*time.Millisecond, func() { _ = c.Close(ctx) })
	})
}

// Err, Done and borrowed leases report the end of a lease at the same moment.
func TestBorrowedLeasesEndWithTheOuter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, nil)
		outer := lock(t, c, "x")
		inner, err := c.Mutex("x", holdfast.Reentrant()).Lock(outer.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		conn.Cut()
		<-outer.Done()
		select {
		case <-inner.Done():
		default:
			t.Error("the borrowed lease is not done")
		}
		isLost(t, inner.Err(), holdfast.ReasonUnreachable)
	})
}
