package zklock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// The servers delete a folder after use, and its numbers start again; tokens grow.
func TestTokensOutliveFolders(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	p := newPeer(t, cfg)
	var last uint64
	for range 4 {
		h := p.get(p.req("deep/er/x"))
		if h.Token <= last {
			t.Errorf("token %d after %d", h.Token, last)
		}
		last = h.Token
		if kids := z.children(cfg.Root + "/deep/er/x"); len(kids) != 1 || kids[0][len(kids[0])-10:] != "0000000000" {
			t.Errorf("the folder is not a new one: %q", kids)
		}
		p.release(h)
		until(t, "the folder is gone", func() bool { return len(z.children(cfg.Root)) == 0 })
	}
}

// A request that fails in a new folder leaves no folder for good.
func TestUnusedFoldersGo(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	p := newPeer(t, cfg)
	wants(t, "a step that fails", zklock.FailIn(within(t), p.Session, cfg.Root+"/deep/er/lock", 0), zk.ErrBadVersion)
	if left := z.nodes(cfg.Root); len(left) > 0 {
		t.Errorf("it left %q", left)
	}
	must(t, "limit", zklock.FailIn(within(t), p.Session, cfg.Root+"/sem", 3))
	z.empty(cfg.Root)
}

// The servers delete folders and their parents while clients use them: no client notices.
func TestUseWhileReaped(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, longSessions, "-Dznode.container.checkIntervalMs=2")
	var all sync.WaitGroup
	var mu sync.Mutex
	last := map[string]uint64{}
	const enough = 60
	rounds := 0
	over := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return rounds >= enough || t.Failed()
	}
	for i := range 6 {
		p := newPeer(t, on(server.Addr))
		p.t = beside{t}
		name := []string{"a/b/c", "a/b/c", "a/s", "a/s", "a/l", "a/b"}[i]
		all.Go(func() {
			for !over() {
				switch name {
				case "a/l":
					if _, err := p.SetCount(within(t), name, 1); err != nil {
						t.Errorf("SetCount: %v", err)
						return
					}
					if left, err := p.CountDown(within(t), name, "one"); left != 0 || err != nil {
						t.Errorf("CountDown: %d, %v", left, err)
						return
					}
					wants(t, "remove", p.RemoveLatch(within(t), name), nil)
					continue
				}
				r := p.req(name)
				if name == "a/s" {
					r = p.permits(name, 2, 3)
				}
				reply, err := p.Acquire(within(t), r)
				if err != nil {
					t.Errorf("Acquire %q: %v", name, err)
					return
				}
				h := p.woken(r, reply)
				mu.Lock()
				if h.Token <= last[name] {
					t.Errorf("%q: token %d after %d", name, h.Token, last[name])
				}
				last[name] = h.Token
				rounds++
				mu.Unlock()
				wants(t, "Release", p.Release(within(t), h, 0), nil)
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// Folders that another program created and does not delete, and folders below another lock's
// folder, work as well.
func TestClientsOverReapedFolders(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, longSessions, "-Dznode.container.checkIntervalMs=2")
	c := client(t, on(server.Addr), longTTL)
	var last uint64
	for range testenv.Rounds(60, 600) {
		l, err := c.Mutex("t", holdfast.MinHold(time.Millisecond)).TryLock(within(t))
		if err != nil { // kept for a millisecond
			wants(t, "TryLock", err, holdfast.ErrHeld)
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		must(t, "Release", l.Release())
		time.Sleep(2 * time.Millisecond)
	}
}
