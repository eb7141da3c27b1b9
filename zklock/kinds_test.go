package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// lockAs takes "x" exclusively, as one of three kinds of lock.
func lockAs(t *testing.T, c *holdfast.Client, kind string) (*holdfast.Lease, error) {
	switch kind {
	case "writer":
		return c.RWMutex("x").Lock(within(t))
	case "permits":
		return c.Semaphore("x", 2).Acquire(within(t), 2)
	}
	return c.Mutex("x").Lock(within(t))
}

// Several sessions want one name as different kinds at the same moment. At most one kind has it at
// a time, and soon some session gets it.
func TestKindsRace(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	parties := make([]*peer, 4)
	for i := range parties {
		parties[i] = newPeer(t, cfg)
	}
	names := []string{"lock", "reader", "semaphore", "latch"}
	took := map[string]int{}
	for round := range testenv.Rounds(40, 120) {
		name := fmt.Sprintf("k/%d", round%3) // new folders, and used ones
		var have [4]atomic.Int32
		var mu sync.Mutex
		var all sync.WaitGroup
		start, won := make(chan struct{}), make(chan struct{})
		var once1 sync.Once
		for i, p := range parties {
			all.Go(func() {
				<-start
				for {
					r := p.req(name)
					r.Wait = round%2 == 0
					var h driver.Hold
					var err error
					switch i {
					case 1:
						r.Mode = driver.Shared
					case 2:
						r.Mode, r.N, r.Limit = driver.Permits, 2, 3
					}
					var got bool
					if i == 3 {
						got, err = p.SetCount(within(t), name, 5)
					} else {
						var reply driver.Reply
						reply, err = p.Acquire(within(t), r)
						got = reply.Token != 0
						h = driver.Hold{Name: name, ID: r.ID, Token: reply.Token}
					}
					if err != nil && !errors.Is(err, driver.ErrKind) {
						t.Errorf("%s: %v", names[i], err)
						return
					}
					if got {
						have[i].Add(1)
						for k := range have {
							// Mutex and reader are of one kind.
							if k != i && k != 1-i && have[k].Load() > 0 {
								t.Errorf("%q is held as a %s and as a %s", name, names[i], names[k])
							}
						}
						time.Sleep(2 * time.Millisecond)
						have[i].Add(-1)
						if i == 3 {
							wants(t, "remove", p.RemoveLatch(within(t), name), nil)
						} else {
							wants(t, "Release", p.Release(within(t), h, 0), nil)
						}
						mu.Lock()
						took[names[i]]++
						mu.Unlock()
						once1.Do(func() { close(won) })
						return
					}
					if i != 3 {
						wants(t, "Cancel", p.Cancel(within(t), name, r.ID), nil)
					}
					select {
					case <-won:
						return
					case <-time.After(time.Duration(rand.IntN(5)) * time.Millisecond):
					}
				}
			})
		}
		close(start)
		all.Wait()
	}
	t.Logf("%v", took)
	z.empty(cfg.Root + "/k")
}

func TestBigLatch(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	const workers = 8
	count := testenv.Rounds(400, 3000) // as many as all do together
	c := client(t, cfg, longTTL)
	created, err := c.Latch("l").Set(within(t), int64(count))
	if err != nil || !created {
		t.Fatalf("Set: %v, %v", created, err)
	}
	waited := make(chan error, 3)
	for range cap(waited) {
		w := client(t, cfg, longTTL)
		go func() { waited <- w.Latch("l").Wait(within(t)) }()
	}
	var sum, zeros atomic.Int64
	var all sync.WaitGroup
	for i := range workers {
		w := client(t, cfg, longTTL)
		all.Go(func() {
			for k := range count / workers {
				id := fmt.Sprintf("job %d of %d", k, i)
				for range 1 + k%10/9 { // some count twice
					left, err := w.Latch("l").CountDown(within(t), id)
					if err != nil {
						t.Errorf("CountDown: %v", err)
						return
					}
					if left == 0 {
						zeros.Add(1)
					}
				}
				sum.Add(1)
				if len(waited) > 0 && sum.Load() < int64(count-workers) {
					t.Errorf("let through after %d", sum.Load())
				}
			}
		})
	}
	all.Wait()
	if zeros.Load() == 0 {
		t.Error("no waiter learned that the latch is at zero")
	}
	for range cap(waited) {
		wants(t, "Wait", <-waited, nil)
	}
	wants(t, "Remove", c.Latch("l").Remove(within(t)), nil)
	wants(t, "Wait after it", c.Latch("l").Wait(within(t)), holdfast.ErrGone)
	z.empty(cfg.Root + "/l")
}

// CountDown runs during a removal. Each count is either counted or refused because the latch is
// gone, and the next latch starts without any.
func TestCountDownDuringRemoval(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	for round := range testenv.Rounds(12, 30) {
		created, err := a.SetCount(within(t), "l", 1000)
		if err != nil || !created {
			t.Fatalf("round %d: SetCount: %v, %v: the latch was removed", round, created, err)
		}
		if rec := a.inspect("l"); rec.Count != 1000 {
			t.Fatalf("round %d: a new latch of 1000 has %d left", round, rec.Count)
		}
		reply, err := b.Await(within(t), "l", fmt.Sprintf("w-%d", round))
		must(t, "Await", err)
		var all sync.WaitGroup
		for i, p := range []*peer{a, b, a, b} {
			all.Go(func() {
				for k := range 30 {
					_, err := p.CountDown(within(t), "l", fmt.Sprintf("%d-%d-%d", round, i, k))
					if err != nil {
						wants(t, "CountDown", err, driver.ErrGone)
						return
					}
				}
			})
		}
		for range 2 { // two remove it at once
			all.Go(func() {
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				if err := b.RemoveLatch(within(t), "l"); err != nil {
					wants(t, "remove", err, driver.ErrGone)
				}
			})
		}
		all.Wait()
		select {
		case <-reply.Wake:
		case <-time.After(limit):
			t.Error("the waiter was not woken")
		}
		_, err = b.Await(context.Background(), "l", "x")
		wants(t, "Await", err, driver.ErrGone)
	}
	z.empty(cfg.Root + "/l")
}
