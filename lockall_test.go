package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, second := memlock.New(), memlock.New()
		c, d, other := client(t, store, nil), client(t, second, nil), client(t, store, nil)
		m, err := holdfast.LockAll(t.Context(), c.Mutex("b"), d.Mutex("b"), c.RWMutex("c").Reader(), c.Mutex("a"),
			c.RWMutex("b").Reader(), c.Semaphore("s", 3), c.Semaphore("s", 3).Permits(2), c.RWMutex("w"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range m.Leases() {
			names = append(names, l.Name())
		}
		if got := fmt.Sprint(names); got != "[a b b c s w]" {
			t.Errorf("parts: %v", got)
		}
		ctx := m.Context(t.Context())
		for _, l := range m.Leases() {
			if holdfast.TokenOf(ctx, l.Name()) == 0 {
				t.Errorf("the context has no token of %s", l.Name())
			}
		}
		if holdfast.TokenOf(ctx, "z") != 0 || holdfast.Token(ctx) != holdfast.TokenOf(ctx, "w") {
			t.Error("tokens of the context")
		}
		refused(t, holdfast.ErrHeld)(other.RWMutex("b").TryRLock(t.Context()))
		refused(t, holdfast.ErrHeld)(other.Semaphore("s", 3).TryAcquire(t.Context(), 1))
		refused(t, holdfast.ErrDeadlock)(other.Mutex("a").Lock(ctx))
		release(t, take(t)(other.RWMutex("c").TryRLock(t.Context())))
		time.Sleep(5 * ttl)
		if err := m.Err(); err != nil || ctx.Err() != nil {
			t.Errorf("held, and: %v, %v", err, ctx.Err())
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
		<-m.Done()
		if err := m.Err(); !errors.Is(err, holdfast.ErrReleased) || !errors.Is(context.Cause(ctx), holdfast.ErrReleased) {
			t.Errorf("after Release: %v", err)
		}
		for _, name := range names {
			if r, err := c.Inspect(t.Context(), name); err != nil || r.Kind != "" {
				t.Errorf("%s is still in use: %+v, %v", name, r, err)
			}
		}
	})
}

// A part that is named twice has the options of both.
func TestLockAllJoinsOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, &holdfast.Config{Labels: map[string]string{"team": "a"}}), client(t, store, nil)
		twice := func(opts ...holdfast.Option) []holdfast.Part {
			return []holdfast.Part{c.Mutex("x"), c.Mutex("x", opts...), c.Mutex("x")}
		}
		held := lock(t, other, "x")
		within(t, "WaitAtMost", time.Second, time.Second+time.Millisecond, func() {
			if _, err := holdfast.LockAll(t.Context(), twice(holdfast.WaitAtMost(time.Second))...); !errors.Is(err,
				holdfast.ErrHeld) {
				t.Errorf("LockAll: %v", err)
			}
		})
		release(t, held)
		parts := append(twice(holdfast.MaxHold(time.Minute), holdfast.Note("one"), holdfast.Label("step", "1")),
			c.Mutex("x", holdfast.MaxHold(time.Hour), holdfast.Note("two"), holdfast.Label("step", "2")))
		m, err := holdfast.LockAll(t.Context(), parts...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := other.Inspect(t.Context(), "x")
		if err != nil || r.Holders[0].Note != "one; two" || r.Holders[0].Labels["step"] != "1" ||
			r.Holders[0].Labels["team"] != "a" {
			t.Errorf("the record: %+v, %v", r, err)
		}
		again, err := holdfast.LockAll(m.Context(t.Context()), twice(holdfast.Reentrant())...)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Release(); err != nil {
			t.Error(err)
		}
		within(t, "MaxHold", time.Minute, time.Minute, func() { <-m.Done() })
		isLost(t, m.Err(), holdfast.ReasonMaxHold)
	})
}

// A MultiLease ends when any part does, and reports that.
func TestLockAllLosesAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, operator := client(t, store, nil), client(t, store, nil)
		err := holdfast.DoAll(t.Context(), func(ctx context.Context) error {
			if err := operator.Break(ctx, "b", holdfast.TokenOf(ctx, "b"), ""); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			isLost(t, context.Cause(ctx), holdfast.ReasonEnded)
			return nil
		}, c.Mutex("a"), c.Mutex("b"), c.Mutex("c"))
		isLost(t, err, holdfast.ReasonBroken)
		m, err := holdfast.LockAll(t.Context(), operator.Mutex("a"), operator.Mutex("c"))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A LockAll that fails holds nothing, not even for a minimum hold.
func TestLockAllFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		free := func() {
			t.Helper()
			for _, name := range []string{"a", "b"} {
				if r, err := c.Inspect(t.Context(), name); err != nil || r.Kind != "" {
					t.Errorf("%s is in use: %+v, %v", name, r, err)
				}
			}
		}
		held := lock(t, other, "c")
		a, b := c.Mutex("a", holdfast.MinHold(time.Hour)), c.RWMutex("b", holdfast.MinHold(time.Hour)).Reader()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		within(t, "LockAll", 3*time.Second, 3*time.Second, func() {
			if _, err := holdfast.LockAll(ctx, c.Mutex("c"), b, a); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("LockAll: %v", err)
			}
		})
		free()
		within(t, "LockAll with WaitAtMost", 2*time.Second, 2*time.Second+time.Millisecond, func() {
			_, err := holdfast.LockAll(t.Context(), a, b, c.Mutex("c", holdfast.WaitAtMost(2*time.Second)))
			var e *holdfast.Error
			if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Name != "c" || e.Holder == nil {
				t.Errorf("LockAll with WaitAtMost: %v", err)
			}
		})
		free()
		if _, err := holdfast.TryLockAll(t.Context(), a, b, c.Mutex("c")); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLockAll: %v", err)
		}
		free()
		release(t, held)
		for _, parts := range [][]holdfast.Part{nil, {nil}, {c.Mutex("")},
			{c.Semaphore("s", 3).Permits(2), c.Semaphore("s", 3).Permits(2)}} {
			if _, err := holdfast.LockAll(t.Context(), parts...); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("LockAll(%v): %v", parts, err)
			}
		}
		// One part is no "lock all": the user of one lock has not asked for several.
		if _, err := holdfast.LockAll(t.Context(), c.Mutex("")); !strings.HasPrefix(err.Error(), `holdfast: lock: `) {
			t.Errorf("LockAll of one part: %v", err)
		}
		for _, part := range []holdfast.Part{c.Semaphore("a", 3), c.Semaphore("s", 4)} {
			if _, err := holdfast.LockAll(t.Context(), c.Mutex("a"), c.Semaphore("s", 3), part); !errors.Is(err,
				holdfast.ErrKind) {
				t.Errorf("LockAll of one name as two kinds: %v", err)
			}
		}
		free()
		m, err := holdfast.TryLockAll(t.Context(), a, b, c.Mutex("c"))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	})
}

// While it waits for one part, LockAll does not keep the others from contenders that could use
// them, and keeps its place in the queue.
func TestLockAllReleasesWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		held := lock(t, other, "z")
		got := make(chan *holdfast.MultiLease)
		go func() {
			m, err := holdfast.LockAll(t.Context(), c.Mutex("a"), c.Mutex("b"), c.Mutex("z"))
			if err != nil {
				t.Error(err)
			}
			got <- m
		}()
		synctest.Wait()
		refused(t, holdfast.ErrHeld)(other.Mutex("a").TryLock(t.Context()))
		time.Sleep(time.Second)
		for range 10 {
			a := take(t)(other.Mutex("a").TryLock(t.Context()))
			time.Sleep(time.Minute)
			release(t, a)
		}
		late := lockAsync(t, client(t, store, nil).Mutex("z").Lock)
		stillWaiting(t, "who came later", late)
		a := lock(t, other, "a")
		release(t, held)
		synctest.Wait() // the call has z, and finds a taken
		time.Sleep(time.Second)
		release(t, acquired(t, "a later waiter, after LockAll released z", late))
		release(t, a)
		if err := (<-got).Release(); err != nil {
			t.Error(err)
		}
	})
}

// Many callers take many locks of two stores: none waits for ever, and no two hold the same lock.
func TestLockAllDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, rounds, names = 6, 30, 5
		stores := []*memlock.Store{memlock.New(), memlock.New()}
		var mu sync.Mutex
		inside := map[string]int{} // by store and name: writers count 1000
		var group sync.WaitGroup
		for w := range workers {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			var clients []*holdfast.Client
			for _, s := range stores {
				clients = append(clients, client(t, s, nil))
			}
			group.Go(func() {
				for range rounds {
					var parts []holdfast.Part
					use := map[string]int{}
					for range 1 + random.IntN(4) {
						s, n := random.IntN(len(stores)), random.IntN(names)
						name := string(rune('a' + n))
						m := clients[s].RWMutex(name)
						if key := fmt.Sprint(s, name); random.IntN(3) == 0 {
							parts, use[key] = append(parts, m), 1000
						} else {
							parts, use[key] = append(parts, m.Reader()), max(use[key], 1)
						}
					}
					err := holdfast.DoAll(t.Context(), func(context.Context) error {
						mu.Lock()
						for key, n := range use {
							if inside[key] += n; inside[key] > 1000 || n == 1000 && inside[key] != 1000 {
								t.Errorf("%s: %d inside", key, inside[key])
							}
						}
						mu.Unlock()
						time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						for key, n := range use {
							inside[key] -= n
						}
						return nil
					}, parts...)
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		start := time.Now()
		group.Wait()
		// Alone, one after the other, they would need workers*rounds*1.5s.
		if d := time.Since(start); d > workers*rounds*1500*time.Millisecond*2 {
			t.Errorf("it took %v", d)
		}
	})
}

// A Backend need not be comparable.
func TestLockAllOfABackendByValue(t *testing.T) {
	type byValue struct {
		driver.Backend
		_ []int
	}
	synctest.Test(t, func(t *testing.T) {
		c := client(t, byValue{Backend: memlock.New()}, nil)
		err := holdfast.DoAll(t.Context(), func(ctx context.Context) error {
			_, err := c.Mutex("a").Lock(ctx)
			return err
		}, c.Mutex("a"), c.Mutex("a"))
		if !errors.Is(err, holdfast.ErrDeadlock) {
			t.Error(err)
		}
	})
}

// The renewals of a part of LockAll are not answered, so it is lost while the call waits for another part.
// The call takes it again, and does not wait until the store ends the lost lease.
func TestLockAllTakesALostPartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := &hooks{Backend: store}
		h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
			_, _ = next()
			return nil, driver.ErrUncertain
		}
		short, long := client(t, h, &holdfast.Config{TTL: 400 * time.Millisecond}), client(t, store, nil)
		b := lock(t, client(t, store, nil), "b")
		time.AfterFunc(450*time.Millisecond, func() { release(t, b) })
		within(t, "LockAll", 450*time.Millisecond, 500*time.Millisecond, func() {
			m, err := holdfast.LockAll(t.Context(), short.Mutex("a"), long.Mutex("b"))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Release(); err != nil {
				t.Error(err)
			}
		})
	})
}
