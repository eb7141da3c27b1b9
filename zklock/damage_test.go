package zklock_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Another program writes to a latch, or creates a node of that name. Calls for the name report the
// damage and delete nothing; all other names work.
func TestDamagedLatch(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	p := newPeer(t, cfg)
	good := p.get(p.req("a"))
	if _, err := p.SetCount(within(t), "c", 2); err != nil {
		t.Fatal(err)
	}
	z.make(cfg.Root+"/b/latch", zk.Persistent) // with data of the other program
	z.make(cfg.Root+"/b/latch/theirs", zk.Persistent)
	const bad = "b"
	ctx := within(t)
	_, acquire := p.Acquire(ctx, once(p.req(bad)))
	_, permit := p.Acquire(ctx, once(p.permits(bad, 1, 2)))
	_, inspect := p.Inspect(ctx, bad)
	_, set := p.SetCount(ctx, bad, 2)
	_, count := p.CountDown(ctx, bad, "c-1")
	_, await := p.Await(ctx, bad, "w-1")
	for call, err := range map[string]error{
		"Acquire": acquire, "Acquire of a permit": permit, "Inspect": inspect, "SetCount": set, "CountDown": count,
		"Await": await,
		"Break": p.Break(ctx, bad, 1), "RemoveLatch": p.RemoveLatch(ctx, bad), "SetLimit": p.SetLimit(ctx, bad, 3),
	} {
		if !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%s: %v; want ErrDamaged", call, err)
		}
	}
	if got := z.nodes(cfg.Root + "/b"); !slices.Contains(got, cfg.Root+"/b/latch/theirs") {
		t.Errorf("another program's nodes were deleted; left: %q", got)
	}
	list, err := p.List(ctx, "", "", 10)
	must(t, "List", err)
	if len(list) != 3 || list[1].Name != bad || list[1].Damaged == "" || list[0].Kind != driver.Lock ||
		list[2].Count != 2 {
		t.Errorf("List: %+v", list)
	}
	if ch := p.renew(good); ch.State != 0 {
		t.Errorf("Renew: %+v", ch)
	}
	p.release(good)
}
