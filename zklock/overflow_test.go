package zklock_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// forged starts a server whose folders have had so many children. The server keeps these folders
// when they are empty.
func forged(t *testing.T, counts map[string]int32) *testenv.ZooKeeperServer {
	t.Helper()
	server := testenv.ZooKeeper(t, longSessions, "-Dzookeeper.digest.enabled=false")
	z := newTree(t, server.Addr)
	for f := range counts {
		for i := range strings.Count(f, "/") {
			made := strings.Join(strings.Split(f, "/")[:i+2], "/")
			if _, _, err := z.Create(within(t), made, nil, zk.Persistent, zk.WorldACL(zk.PermAll)); err != nil &&
				!errors.Is(err, zk.ErrNodeExists) {
				t.Fatal(err)
			}
		}
	}
	must(t, "Close", z.Close(within(t)))
	server.Restart(true)
	server.Stop()
	server.Forge(counts)
	server.Start()
	return server
}

// When a folder's numbers come to their end, requests are refused and leave no node. Other folders
// work. So does this one after the servers have deleted it because it was empty.
func TestSequenceOverflow(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, root string
		count      int32
	}{
		{"near the end", "/near", math.MaxInt32 - 90_000},
		{"at the end", "/end", math.MaxInt32 - 1},
		{"stuck", "/stuck", math.MaxInt32},
		{"negative", "/negative", math.MinInt32 + 5},
	}
	counts := map[string]int32{}
	for _, c := range cases {
		for _, dir := range []string{"/x", "/full", "/s/locks", "/u/leases"} {
			counts[c.root+dir] = c.count
		}
	}
	server := forged(t, counts)
	z := newTree(t, server.Addr)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := zklock.Config{Servers: []string{server.Addr}, Root: c.root}
			a, b := newPeer(t, cfg), newPeer(t, cfg)
			z.make(c.root+"/full/abc", zk.Persistent) // a folder that is not empty
			for range 3 {
				refusals := 0
				for _, r := range []*driver.Request{
					a.req("full"), once(a.req("full")), a.shared("full"), a.req("x"), once(a.req("x")), a.shared("x"),
					a.permits("s", 1, 3), once(a.permits("s", 2, 3)), a.permits("u", 3, 3), once(a.permits("u", 1, 3)),
				} {
					reply, err := a.Acquire(within(t), r)
					switch {
					case reply.Token != 0 && err == nil && r.Name != "full": // the folder was created again
						a.release(driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token})
					case !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), c.root+"/"+r.Name):
						t.Errorf("%s: %+v, %v; want ErrRefused that names the folder", r.Name, reply, err)
					default:
						refusals++
					}
					if err := a.Cancel(within(t), r.Name, r.ID); err != nil {
						t.Errorf("Cancel: %v", err)
					}
				}
				if refusals < 3 {
					t.Errorf("%d refusals", refusals)
				}
				for _, name := range []string{"full", "x", "s/locks", "s/leases", "u/locks", "u/leases"} {
					for _, n := range z.children(c.root + "/" + name) {
						if n != "abc" {
							t.Errorf("left in %s: %s", name, n)
						}
					}
				}
				b.release(b.get(b.req("other")))
			}
			z.delete(c.root + "/full/abc")
			z.delete(c.root + "/u/leases")
			for _, name := range []string{"full", "x"} {
				until(t, "the folder can be used again", func() bool {
					r := once(b.req(name))
					reply, err := b.Acquire(within(t), r)
					if err == nil && reply.Token != 0 {
						b.release(driver.Hold{Name: name, ID: r.ID, Token: reply.Token})
					}
					return err == nil
				})
			}
			for _, name := range []string{"s", "u"} {
				until(t, "the semaphore can be used again", func() bool {
					r := b.permits(name, 3, 3)
					_, err := b.Acquire(within(t), r)
					return err == nil
				})
			}
		})
	}
}

// A lock taken before the end of the numbers can be held on and released.
func TestOverflowDuringHold(t *testing.T) {
	t.Parallel()
	const last = math.MaxInt32 - 100_000 // the last number in use
	server := forged(t, map[string]int32{"/holdfast/x": last - 2})
	z := newTree(t, server.Addr)
	a, b := newPeer(t, on(server.Addr)), newPeer(t, on(server.Addr))
	z.make("/holdfast/x/abc", zk.Persistent)
	h := a.get(a.req("x"))
	w := b.req("x")
	reply := b.refused(w)
	_, err := b.Acquire(within(t), b.req("x"))
	wants(t, "beyond the last number", err, driver.ErrRefused)
	if rec := b.inspect("x"); len(rec.Holders) != 1 || rec.Waiting != 1 || rec.Holders[0].Token != h.Token {
		t.Errorf("%+v", rec)
	}
	time.Sleep(10 * time.Millisecond)
	a.release(h)
	b.release(b.woken(w, reply))
}
