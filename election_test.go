package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Terms grow, and nobody leads before the last leader's function has returned.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var leading atomic.Int32
		var mu sync.Mutex
		var terms []uint64
		var group sync.WaitGroup
		for i := range 3 {
			e := client(t, store, nil).Election("boss", holdfast.Candidate(fmt.Sprint("node-", i),
				fmt.Sprintf("10.0.0.%d:80", i)))
			group.Go(func() {
				for range 5 {
					err := e.Lead(t.Context(), func(ctx context.Context) error {
						if leading.Add(1) != 1 {
							t.Error("two lead")
						}
						mu.Lock()
						terms = append(terms, holdfast.Token(ctx))
						mu.Unlock()
						l, err := e.Leader(ctx)
						if err != nil || l == nil || l.Name != fmt.Sprint("node-", i) || l.Address != fmt.Sprintf("10.0.0.%d:80", i) ||
							l.Term != holdfast.Token(ctx) {
							t.Errorf("Leader: %+v, %v", l, err)
						}
						time.Sleep(ttl)
						leading.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if len(terms) != 15 || !slices.IsSorted(terms) || len(slices.Compact(terms)) != 15 {
			t.Errorf("terms: %v", terms)
		}
		c := client(t, store, nil)
		take(t)(c.Semaphore("s", 1).Acquire(t.Context(), 1))
		if _, err := c.Election("s").Leader(t.Context()); !errors.Is(err, holdfast.ErrKind) {
			t.Errorf("Leader of a semaphore: %v", err)
		}
		take(t)(c.RWMutex("r").RLock(t.Context()))
		if l, err := c.Election("r").Leader(t.Context()); l != nil || err != nil {
			t.Errorf("a reader leads: %v, %v", l, err)
		}
		if l, err := c.Election("boss").Leader(t.Context()); l != nil || err != nil {
			t.Errorf("nobody leads, but: %+v, %v", l, err)
		}
	})
}

// A leader that is cut off learns of it before another leads.
func TestLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		var leading atomic.Int32
		ended := make(chan error)
		go func() {
			ended <- client(t, conn, nil).Election("boss").Lead(t.Context(), func(ctx context.Context) error {
				leading.Add(1)
				<-ctx.Done()
				leading.Add(-1)
				return nil
			})
		}()
		synctest.Wait()
		next := lockAsync(t, client(t, store, nil).Election("boss").Campaign)
		stillWaiting(t, "a second leader", next)
		conn.Cut()
		l := <-next
		if leading.Load() != 0 {
			t.Error("two lead")
		}
		isLost(t, <-ended, holdfast.ReasonUnreachable)
		release(t, l)
	})
}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		conn := drivertest.Faulty(store)
		watch := client(t, conn, nil).Election("boss")
		seen := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() {
			defer close(done)
			for l, err := range watch.Observe(ctx) {
				switch {
				case err != nil:
					seen <- "outage"
				case l == nil:
					seen <- "nobody"
				default:
					seen <- l.Name
				}
			}
		}()
		expect := func(want string) {
			t.Helper()
			time.Sleep(ttl)
			synctest.Wait()
			select {
			case got := <-seen:
				if got != want {
					t.Fatalf("observed %s; want %s", got, want)
				}
			default:
				t.Fatalf("nothing observed; want %s", want)
			}
			if len(seen) != 0 {
				t.Fatalf("observed besides: %s", <-seen)
			}
		}
		expect("nobody")
		l := take(t)(c.Election("boss", holdfast.Candidate("a", "")).Campaign(t.Context()))
		expect("a")
		release(t, l)
		expect("nobody")
		l = take(t)(c.Election("boss", holdfast.Candidate("b", "")).Campaign(t.Context()))
		expect("b")
		release(t, l)
		take(t)(c.Election("boss", holdfast.Candidate("b", "")).Campaign(t.Context()))
		expect("b") // another term
		conn.Kill() // no hint comes: the next look finds out
		time.Sleep(ttl)
		expect("outage")
		cancel()
		<-done
	})
}
