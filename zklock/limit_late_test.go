package zklock_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// The last step of SetLimit, or of SetCount, comes after the name has been taken in another way. It
// fails, and a repeat finds out what the name is.
func TestLateLimits(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	b, p := backend(t, cfg), newPeer(t, cfg)
	limit := func(name string) func() error {
		t.Helper()
		step, err := zklock.LateLimit(within(t), b, name, 2)
		must(t, "SetLimit", err)
		return step
	}
	is := func(name string, kind driver.Kind) {
		t.Helper()
		if r := p.inspect(name); r.Kind != kind || r.Set {
			t.Errorf("%s: %+v; want kind %d without a limit that is set", name, r, kind)
		}
	}
	step := limit("latch")
	_, err := p.SetCount(within(t), "latch", 1)
	must(t, "SetCount", err)
	wants(t, "a limit beside a latch", step(), zk.ErrNodeExists)
	is("latch", driver.Latch)

	step = limit("lock")
	p.get(p.req("lock"))
	wants(t, "a limit beside a lock", step(), zk.ErrNoNode)
	is("lock", driver.Lock)

	step = limit("semaphore")
	p.get(p.permits("semaphore", 1, 3))
	if err := step(); err == nil {
		t.Error("a limit of 2 beside a semaphore of 3")
	}
	is("semaphore", driver.Semaphore)

	step, err = zklock.LateLatch(within(t), p.Session, "limit")
	must(t, "SetCount", err)
	setLimit(t, b, "limit", 2)
	wants(t, "a latch beside a limit", step(), zk.ErrNodeExists)
	if r := p.inspect("limit"); r.Kind != driver.Semaphore || !r.Set {
		t.Errorf("%+v; want a limit that is set", r)
	}
}

// A limit is removed while the semaphore is in use, and another operator sets it in between. The limit
// in use is then the one that was set last.
func TestLateRemovalOfALimit(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	b, p := backend(t, cfg), newPeer(t, cfg)
	for _, what := range []string{"held", "waited for", "set again"} {
		setLimit(t, b, what, 8)
		if what == "waited for" {
			p.refused(p.permits(what, 9, 0))
		} else {
			p.get(p.permits(what, 1, 0))
		}
		step, err := zklock.LateRemoval(within(t), b, what)
		must(t, "removal", err)
		if what == "set again" {
			setLimit(t, p, what, 0)
		}
		setLimit(t, p, what, 2)
		// The server may have removed the empty folder of the queue.
		if err := step(); !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("%s: a late removal: %v; want another version, or no folder", what, err)
		}
		if r := p.inspect(what); r.Limit != 2 || !r.Set {
			t.Errorf("%s: %+v; want the limit of 2 that is set", what, r)
		}
		setLimit(t, b, what, 0)
		if r := p.inspect(what); r.Limit != 2 || r.Set {
			t.Errorf("%s: %+v; want the limit of 2 in use", what, r)
		}
	}
}

// Somebody waits for more permits than there are, and nobody has any. The servers then delete the
// folder of the permits, which has the limit in use, and the waiter, which writes it again, is slow.
func TestLimitWithoutItsFolder(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	proxy := testenv.Proxy(t, server.Addr)
	b, p := backend(t, cfg), newPeer(t, through(cfg, proxy))
	setLimit(t, b, "x", 8)
	p.refused(p.permits("x", 9, 0))
	setLimit(t, b, "x", 2)
	setLimit(t, b, "x", 0)
	proxy.Hole()
	folder, tree := cfg.Root+"/x/leases", newTree(t, server.Addr)
	until(t, "the folder of the permits is deleted", func() bool {
		return !slices.Contains(tree.nodes(cfg.Root+"/x"), folder)
	})
	r, err := b.Inspect(within(t), "x")
	if err != nil || r.Limit != 2 || r.Set || r.Waiting != 1 {
		t.Errorf("%+v, %v; want the limit of 2 in use", r, err)
	}
}
