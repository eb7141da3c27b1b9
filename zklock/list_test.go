package zklock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

// oddNames are names that ZooKeeper does not allow, names that look like something else, and their
// neighbours.
var oddNames = []string{
	"a", "a/b", "a!", "a/b/c", "a//b", "a/", "a//", "/", "//", "/a", "a0", "a\x00", "a\x1f", "a/\x7f", "é", "e\u0301",
	"🔒/🔑", "\ufffe\uffff", "\ue000\uf8ff", "\ufff0",
	".", "..", "./.", "a/..", "...", "%", "%%", "%25", "a/%", "a/%2F", "a/zookeeper", "locks", "leases", "latch",
	"x-lock-0000000001", "a/50%", "a/%holdfas", "a/x%holdfast%", "a/locks2", "a/Locks", "a/_c_x", "c/holdfast-clock",
	"c/%clock", "c", "a b", "a\tb", "a\nb", "A", strings.Repeat("/", driver.MaxName),
	strings.Repeat("\x01", driver.MaxName),
	"deep/" + strings.Repeat("d/", 200) + "e",
}

// Every call refuses names whose path means something else, and says what.
func TestNamesRefused(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, longSessions)
	cfg := on(server.Addr)
	cfg.Root = "/"
	p := newPeer(t, cfg)
	for name, why := range map[string]string{
		"a/locks": "semaphore one level up", "a/leases": "semaphore one level up", "a/latch": "latch one level up",
		"a/locks/b":           "semaphore one level up",
		"a/x-lock-0000000001": "node of the lock one level up", "a/50%-lock-0000000001": "node of the lock one level up",
		"a/x__lock__-2147483648/b": "node of the lock",
		"%holdfast":                "reserved", "a/%holdfast%a%0Ab": "reserved", "a/%holdfast:time": "reserved",
		"zookeeper": "ZooKeeper's own", "zookeeper/quota": "ZooKeeper's own",
	} {
		ctx, h := within(t), driver.Hold{Name: name, ID: "x", Token: 1}
		_, acquire := p.Acquire(ctx, &driver.Request{ID: "x", Name: name, Mode: driver.Exclusive, N: 1})
		_, inspect := p.Inspect(ctx, name)
		_, set := p.SetCount(ctx, name, 1)
		_, count := p.CountDown(ctx, name, "x")
		_, await := p.Await(ctx, name, "x")
		for call, err := range map[string]error{
			"Acquire": acquire, "Inspect": inspect, "SetCount": set, "CountDown": count, "Await": await,
			"Adopt": p.Adopt(ctx, h, "y", ""), "Break": p.Break(ctx, name, 1), "RemoveLatch": p.RemoveLatch(ctx, name),
			"SetLimit": p.SetLimit(ctx, name, 1),
		} {
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s(%q): %v; want ErrInvalid and %q", call, name, err, why)
			}
		}
	}
	z := newTree(t, server.Addr)
	if got := z.nodes("/"); slices.ContainsFunc(got, func(p string) bool { return !strings.HasPrefix(p, "/zookeeper") }) {
		t.Errorf("left: %q", got)
	}
}

// Every name is a lock of its own, under any root. The servers refuse none, and no name blocks
// another. List returns them all in byte order, from any position.
func TestOddNames(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, longSessions)
	slices.Sort(oddNames)
	roots := []string{"/", "/app/locks"} // the top first: it contains the others
	afters := []string{"", "a/b", "a", "a!", "a/locks", "zz"}
	for _, root := range roots[:testenv.Rounds(1, 2)] {
		t.Run("root "+root, func(t *testing.T) {
			cfg := zklock.Config{Servers: []string{server.Addr}, Root: root}
			a, b := newPeerFor(t, cfg, 100e9), newPeerFor(t, cfg, 100e9)
			holds := map[string]driver.Hold{}
			for _, name := range oddNames {
				holds[name] = a.get(once(a.req(name)))
			}
			list := func(prefix, after string, limit int) (names []string) {
				all, err := b.List(within(t), prefix, after, limit)
				must(t, "List", err)
				for _, r := range all {
					names = append(names, r.Name)
					if len(r.Holders) != 1 || r.Holders[0].Token != holds[r.Name].Token {
						t.Errorf("%q: %+v", r.Name, r)
					}
				}
				return names
			}
			if got := list("", "", 1000); !slices.Equal(got, oddNames) {
				t.Errorf("List: %q\nwant %q", got, oddNames)
			}
			var paged []string
			for after := ""; ; {
				page := list("", after, 7)
				if len(page) == 0 {
					break
				}
				paged = append(paged, page...)
				after = page[len(page)-1]
			}
			if !slices.Equal(paged, oddNames) {
				t.Errorf("in pages: %q", paged)
			}
			for _, prefix := range []string{"a", "a/", "a/b", "/", "%", "z", "deep/d", "nothing"} {
				for _, after := range afters[:testenv.Rounds(2, 6)] {
					var want []string
					for _, n := range oddNames {
						if strings.HasPrefix(n, prefix) && n > after {
							want = append(want, n)
						}
					}
					if got := list(prefix, after, 1000); !slices.Equal(got, want) {
						t.Errorf("prefix %q after %q: %q; want %q", prefix, after, got, want)
					}
				}
			}
			for _, name := range oddNames {
				if rec := b.inspect(name); len(rec.Holders) != 1 || rec.Waiting != 0 || rec.Holders[0].Token != holds[name].Token {
					t.Errorf("%q: %+v", name, rec)
				}
				b.refused(once(b.req(name)))
				a.release(holds[name])
				h := b.get(once(b.permits(name, 1, 2)))
				if rec := a.inspect(name); rec.Kind != driver.Semaphore || rec.Limit != 2 {
					t.Errorf("%q: %+v", name, rec)
				}
				b.release(h)
			}
			if got := list("", "", 10); len(got) != 0 {
				t.Errorf("after all were released: %q", got)
			}
		})
	}
}
