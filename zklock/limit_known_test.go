package zklock_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Curator's permits are in use, and its folder has no limit. The first client of holdfast sets the
// limit, so another limit is refused.
func TestLimitBesideCuratorsPermits(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	z.make(cfg.Root+"/s/leases/_c_"+curatorUUID+"-lease-", zk.EphemeralSequential)
	h := a.get(a.permits("s", 1, 2))
	if rec := a.inspect("s"); rec.Limit != 2 {
		t.Errorf("limit %d; want 2", rec.Limit)
	}
	reply, err := b.Acquire(within(t), once(b.permits("s", 5, 9)))
	wants(t, "a request with another limit", err, driver.ErrKind)
	if reply.Token != 0 {
		t.Errorf("granted 5 permits, with 2 in use of a limit of 2")
	}
	a.release(h)
}

// A request waits for more permits than a lowered limit allows, and no permit is in use. The limit
// stays: another one is refused, and it still holds when the first waiter has given up.
func TestLimitOfWaitersOnly(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	h := a.get(a.permits("s", 1, 3))
	w := a.permits("s", 3, 3)
	a.refused(w)
	setLimit(t, a, "s", 2)
	a.release(h)
	a.refused(w)
	_, err := b.Acquire(within(t), once(b.permits("s", 3, 3)))
	wants(t, "a new request with the old limit, which does not wait", err, driver.ErrKind)
	_, err = b.Acquire(within(t), b.permits("s", 3, 3))
	wants(t, "a new request with the old limit", err, driver.ErrKind)
	r := b.permits("s", 1, 2)
	reply := b.refused(r)
	must(t, "Cancel", a.Cancel(within(t), "s", w.ID))
	b.release(b.woken(r, reply))
}
