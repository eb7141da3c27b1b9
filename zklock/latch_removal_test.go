package zklock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A removal was interrupted, so the remains of a latch are no live latch. All participants then set
// a new latch at once and count down. The new latch stays, exactly one of them created it, and no
// count is lost.
func TestSetCountAfterInterruptedRemoval(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	parties := make([]*peer, 4)
	for i := range parties {
		parties[i] = newPeer(t, cfg)
	}
	for round := range 60 {
		name := fmt.Sprintf("l-%d", round)
		node := cfg.Root + "/" + name + "/latch"
		z.make(node, zk.Persistent)
		if _, err := z.Set(within(t), node, []byte("holdfast-latch/1 removed 7 x\n"), zk.AnyVersion); err != nil {
			t.Fatal(err)
		}
		z.make(node+"/%holdfast:removed-x", zk.Persistent)
		for i := range 3 {
			z.make(fmt.Sprintf("%s/00000000-0000-0000-0000-00000000000%d", node, i), zk.Persistent)
		}
		var created atomic.Int32
		var all sync.WaitGroup
		start := make(chan struct{})
		for i, p := range parties {
			all.Go(func() {
				<-start
				made, err := p.SetCount(within(t), name, int64(len(parties)))
				if err != nil {
					t.Errorf("round %d: SetCount: %v", round, err)
					return
				}
				if made {
					created.Add(1)
				}
				if _, err := p.CountDown(within(t), name, fmt.Sprint("id-", i)); err != nil {
					t.Errorf("round %d: CountDown after SetCount, without a removal: %v", round, err)
				}
			})
		}
		close(start)
		all.Wait()
		if n := created.Load(); n != 1 {
			t.Errorf("round %d: %d sessions created the latch; want 1", round, n)
		}
		rec := parties[0].inspect(name)
		if rec.Count != 0 {
			t.Errorf("round %d: all have counted, and %d are left", round, rec.Count)
		}
	}
}

// A second removal, which reports that there is no latch, removes no latch that was set since.
func TestLateRemovalOfALatch(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	a, b, c := newPeer(t, cfg), newPeer(t, cfg), newPeer(t, cfg)
	for round := range testenv.Rounds(50, 200) {
		name := fmt.Sprintf("l-%d", round)
		if made, err := a.SetCount(within(t), name, 1); err != nil || !made {
			t.Fatalf("SetCount: %v, %v", made, err)
		}
		results := make(chan error, 2)
		for _, p := range []*peer{b, c} {
			go func() { results <- p.RemoveLatch(within(t), name) }()
		}
		first := <-results
		made, err := a.SetCount(within(t), name, 1)
		if err != nil {
			t.Fatal(err)
		}
		second := <-results
		removed := 0
		for _, err := range []error{first, second} {
			if err == nil {
				removed++
			}
		}
		rec := a.inspect(name)
		if made && removed == 1 && first == nil && rec.Kind == 0 {
			t.Errorf("round %d: the second removal returned %q, and the latch that was set after the first is gone", round,
				second)
		}
	}
}
