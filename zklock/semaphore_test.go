package zklock_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Several sessions take and release 200 permits in groups while the limit changes. There are never
// more grants than the highest limit in force during the hold.
func TestSemaphoreUnderLoad(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	const full, low = 200, 120
	operator := client(t, cfg, longTTL)
	z := newTree(t, server.Addr)
	keeper := newPeer(t, cfg) // the name keeps its limit while it is in use
	h := keeper.get(keeper.permits("s", 1, full))
	const many = 50 // in use at once, before any release
	var inUse, most atomic.Int64
	met, stop := make(chan struct{}), make(chan struct{})
	meet := sync.OnceFunc(func() { close(met) })
	soon := within(t)
	var all sync.WaitGroup
	halt := sync.OnceFunc(func() { close(stop); all.Wait() })
	defer halt()
	for i := range 4 {
		p := newPeer(t, cfg)
		p.t = beside{t}
		for j := range 4 {
			all.Go(func() {
				r := p.permits("s", 10+7*((i+j)%4), full)
				for {
					select {
					case <-stop:
						return
					default:
					}
					r.ID = p.req("").ID
					var reply driver.Reply
					err := answered(t, func(ctx context.Context) (err error) {
						reply, err = p.Acquire(ctx, r)
						return err
					})
					if errors.Is(err, driver.ErrKind) {
						continue // requested with another limit
					}
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					g := p.woken(r, reply)
					n := inUse.Add(int64(r.N))
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					if n >= many {
						meet()
					}
					select {
					case <-met:
					case <-soon.Done():
						t.Errorf("never %d permits in use", many)
						return
					}
					time.Sleep(time.Millisecond) // the work
					inUse.Add(-int64(r.N))
					p.release(g)
				}
			})
		}
	}
	for i := range testenv.Rounds(4, 8) {
		// The subject is permits that come and go under one limit.
		time.Sleep(300 * time.Millisecond)
		if ch := keeper.renew(h); ch.State != 0 {
			t.Fatalf("Renew: %+v", ch)
		}
		must(t, "SetLimit", answered(t, func(ctx context.Context) error {
			return operator.SetLimit(ctx, "s", []int{low, full}[i%2])
		}))
		if rec := keeper.inspect("s"); rec.Limit != []int{low, full}[i%2] {
			t.Errorf("limit %d", rec.Limit)
		}
	}
	halt()
	if m := most.Load(); m > full-1 || m < many {
		t.Errorf("at most %d permits in use, without the keeper's, of %d", m, full)
	}
	keeper.release(h)
	setLimit(t, operator, "s", 0)
	z.empty(cfg.Root + "/s")
}

// A request for more than the limit, which was lowered, waits. This holds although nobody uses a
// permit, and although the servers delete the empty folder.
func TestLimitLoweredBelowRequest(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	z := newTree(t, server.Addr)
	h := a.get(a.permits("s", 1, 3))
	r := b.permits("s", 3, 3)
	reply := b.refused(r)
	setLimit(t, a, "s", 2)
	a.release(h)
	before := time.Now()
	// The servers have deleted empty folders several times.
	for time.Since(before) < 1500*time.Millisecond {
		b.renew(driver.Hold{Name: r.Name, ID: r.ID})
		if again := b.refused(r); again.Wake != nil {
			reply = again
		}
		time.Sleep(50 * time.Millisecond)
	}
	until(t, "the folder with the limit exists again", func() bool {
		if again := b.refused(r); again.Wake != nil {
			reply = again
		}
		return len(z.children(cfg.Root+"/s")) == 2
	})
	setLimit(t, a, "s", 4)
	g := b.woken(r, reply)
	a.release(a.get(once(a.permits("s", 1, 4))))
	if rec := a.inspect("s"); rec.Limit != 4 {
		t.Errorf("limit %d; want 4", rec.Limit)
	}
	b.release(g)
}

// One of a grant's nodes is deleted by hand: the holder learns that the grant has ended, and the
// other permits are released.
func TestLeaseNodeDeleted(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	for _, c := range []struct {
		name  string
		which int
	}{{"the first", 0}, {"the second", 1}, {"the last", 2}} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPeer(t, cfg), newPeer(t, cfg)
			h := a.get(a.permits("s", 3, 3))
			a.renew(h)
			r := b.permits("s", 3, 3)
			reply := b.refused(r)
			z.delete(cfg.Root + "/s/leases/" + z.lease(cfg.Root+"/s/leases", c.which))
			if c.which == 0 { // the node whose deletion is watched
				until(t, "reported gone", func() bool { return a.renew(h).State == driver.Gone })
				if err := a.Release(within(t), h, 0); err == nil {
					t.Error("Release of a grant that is gone: no error")
				}
			} else {
				a.release(h)
			}
			b.release(b.woken(r, reply))
			z.empty(cfg.Root + "/s")
		})
	}
	t.Run("of a waiter", func(t *testing.T) {
		a, b := newPeer(t, cfg), newPeer(t, cfg)
		h := a.get(a.permits("s", 3, 3))
		r := b.permits("s", 1, 3)
		reply := b.refused(r)
		for _, c := range z.children(cfg.Root + "/s/locks") {
			z.delete(cfg.Root + "/s/locks/" + c)
		}
		a.release(h)
		b.release(b.woken(r, reply))
		z.empty(cfg.Root + "/s")
	})
}

// lease returns the name of the i-th permit in a folder, by number.
func (z tree) lease(folder string, i int) string {
	z.t.Helper()
	all := z.children(folder)
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return all[i]
}

func TestManyPermitsAtOnce(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	z := newTree(t, server.Addr)
	r := a.permits("many", 1000, 1500)
	r.MinHold = time.Millisecond
	h := a.get(r)
	if rec := b.inspect("many"); len(rec.Holders) != 1 || rec.Holders[0].N != 1000 {
		t.Errorf("%+v", rec)
	}
	b.refused(once(b.permits("many", 501, 1500)))
	b.release(b.get(once(b.permits("many", 500, 1500))))
	id := b.req("").ID
	must(t, "Adopt", b.Adopt(within(t), h, id, ""))
	b.release(driver.Hold{Name: h.Name, ID: id, Token: h.Token})
	_, err := a.Acquire(within(t), a.permits("many", 1001, 1500))
	wants(t, "1001 permits", err, driver.ErrInvalid)
	z.empty(cfg.Root + "/many")

	// A request that does not fit into one ZooKeeper request is refused: servers close the
	// connection on it.
	long := strings.Repeat("\x01", driver.MaxName)
	_, err = a.Acquire(within(t), a.permits(long, 1000, 1000))
	wants(t, "1000 permits under a long name", err, driver.ErrInvalid)
	r = a.permits(long, 150, 1000)
	r.MinHold = time.Minute
	h = a.get(r)
	must(t, "Adopt", b.Adopt(within(t), h, id, ""))
	must(t, "Cancel", b.Cancel(within(t), long, id))
	z.empty(cfg.Root + "/" + strings.Repeat("%01", driver.MaxName))
}

func TestSemaphoreClients(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	var inside atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		c := client(t, cfg, longTTL)
		for j := range 6 {
			all.Go(func() {
				for range 8 {
					n := 1 + j%3
					err := c.Semaphore("s", 4).Do(within(t), n, func(context.Context) error {
						if now := inside.Add(int64(n)); now > 4 {
							t.Errorf("%d permits of 4", now)
						}
						inside.Add(-int64(n))
						return nil
					})
					wants(t, "Do", err, nil)
				}
			})
		}
	}
	all.Wait()
	c := client(t, cfg, longTTL)
	_, err := c.Semaphore("s", 4).TryAcquire(within(t), 4)
	wants(t, "all permits", err, nil)
	rec, err := c.Inspect(within(t), "s")
	if err != nil || len(rec.Holders) != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
	var he *holdfast.Error
	if _, err := c.Mutex("s").TryLock(within(t)); !errors.Is(err, holdfast.ErrKind) || !errors.As(err, &he) {
		t.Errorf("a mutex of a semaphore: %v", err)
	}
}

// The limit changes while a waiter is in the queue. It has seen the old limit, and looks again only
// when it is first. It takes no permits by the old limit. This holds whether or not the servers have
// deleted the empty folder that contains the limit.
func TestLimitSetWhileWaiting(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	reap := func(name string) {
		if err := z.Delete(within(t), cfg.Root+"/"+name+"/leases", zk.AnyVersion); !errors.Is(err, zk.ErrNoNode) {
			must(t, "delete the empty folder", err)
		}
	}
	turn := func(t *testing.T, b *peer, r *driver.Request) {
		var reply driver.Reply
		// The folder is empty: the servers may delete it again.
		until(t, "the limit is shown", func() bool {
			reply = b.refused(r)
			return b.inspect(r.Name).Limit == r.N-1
		})
		setLimit(t, b, r.Name, r.N)
		b.release(b.woken(r, reply))
	}
	for _, name := range []string{"there", "deleted"} {
		t.Run("seen, the folder is "+name, func(t *testing.T) {
			a, b := newPeer(t, cfg), newPeer(t, cfg)
			h := a.get(a.permits(name, 3, 3))
			r := b.permits(name, 3, 3)
			b.refused(r)
			setLimit(t, a, name, 2)
			a.release(h)
			if name == "deleted" {
				reap(name)
			}
			turn(t, b, r)
		})
		t.Run("behind another, the folder is "+name, func(t *testing.T) {
			name := "new-" + name
			a, b := newPeer(t, cfg), newPeer(t, cfg)
			h := a.get(a.permits(name, 3, 3))
			first := a.permits(name, 3, 3)
			a.refused(first)
			setLimit(t, a, name, 2)
			a.release(h)
			a.refused(first) // and no permit is in use
			r := b.permits(name, 2, 2)
			b.refused(r)
			setLimit(t, a, name, 1)
			must(t, "Cancel", a.Cancel(within(t), name, first.ID))
			if name == "new-deleted" {
				reap(name)
			}
			turn(t, b, r)
		})
	}
}
