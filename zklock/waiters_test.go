package zklock_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Hundreds wait for one name. They get it in order of arrival, and the release before each wakes
// only that one. Afterwards the servers have no node of them. The list of waiters is much longer
// than a request may be.
func TestThousandWaiters(t *testing.T) {
	t.Parallel()
	const clients = 10
	each := testenv.Rounds(40, 100)
	server := testenv.ZooKeeper(t, longSessions, "-Djute.maxbuffer=16384")
	z := newTree(t, server.Addr)
	holder := client(t, on(server.Addr), longTTL)
	before := watches(t, server)
	for _, kind := range []string{"mutex", "writer", "permits"} {
		t.Run(kind, func(t *testing.T) {
			dir := "/holdfast/x"
			j := &judge{t: t}
			l, err := lockAs(t, holder, kind)
			must(t, "Lock", err)
			j.last = l.Token()
			n := clients * each
			if kind != "mutex" {
				n = clients * 10
			}
			if kind == "permits" {
				dir += "/locks"
			}
			base := len(z.children(dir))
			var all sync.WaitGroup
			for range clients {
				c := client(t, on(server.Addr), longTTL)
				for range n / clients {
					all.Go(func() {
						l, err := lockAs(t, c, kind)
						if err != nil {
							t.Errorf("Lock: %v", err)
							return
						}
						j.granted(l)
						j.released(l)
						wants(t, "Release", l.Release(), nil)
					})
				}
			}
			until(t, "all are in the queue", func() bool { return len(z.children(dir)) == base+n })
			until(t, "all watch", func() bool { return watches(t, server) >= before+n })
			// Each waiter watches the node in front, and for renewals its own.
			if w := watches(t, server); w > before+3*n+50 {
				t.Errorf("%d watches of %d waiters", w-before, n)
			}
			if path, many := mostWatched(t, server); many > 4 {
				t.Errorf("%d sessions watch %s: a release wakes them all", many, path)
			}
			must(t, "Release", l.Release())
			all.Wait()
			if g := j.grants(); g != n {
				t.Errorf("%d grants of %d", g, n)
			}
			z.empty("/holdfast")
			until(t, "no watch is left", func() bool { return watches(t, server) <= before })
		})
	}
}

// mostWatched returns the path that most sessions watch.
func mostWatched(t *testing.T, server *testenv.ZooKeeperServer) (path string, most int) {
	t.Helper()
	text, err := server.Word("wchp")
	must(t, "wchp", err)
	at, n := "", 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "/") {
			at, n = strings.TrimSpace(line), 0
			continue
		}
		if n++; n > most {
			path, most = at, n
		}
	}
	return path, most
}
