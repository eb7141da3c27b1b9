package interop

import (
	"fmt"
	"slices"
	"testing"
)

// A waiter behind a holder that dies gets the lock when the server has ended the holder's session,
// and not before.
func TestHolderDies(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		name           string
		holder, waiter side
		die            func(*peer)
	}{
		{"Curator halts", curator, ours, func(p *peer) { p.actors["mutex"].send("halt"); <-p.done }},
		{"holdfast is killed", ours, curator, func(p *peer) { p.kill() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			dead, alive := w.own(c.holder), w.peer(c.waiter)
			path := fmt.Sprint(root, "/death/", i, "/")
			folder := map[string]string{"mutex": path + "mutex", "write": path + "write", "semaphore": path + "semaphore/leases"}
			node := map[string]string{}
			var waiting []*actor
			for kind := range folder {
				dead.actor(kind, shortSession).do("lock", kind, path+kind)
				node[kind] = w.until(folder[kind], 1)[0]
				waiting = append(waiting, alive.actor(kind, longSession))
				w.queue(alive.actors[kind], kind, path+kind)
			}
			mustWait("the holder is alive", waiting...)
			c.die(dead)
			for _, a := range waiting {
				a.ok("lock")
				if left := w.nodes(folder[a.name]); slices.Contains(left, node[a.name]) {
					t.Errorf("%s got the lock while the session of the dead holder existed: %q", a, left)
				}
				a.do("unlock")
			}
		})
	}
}

// Waiters that die delay those behind them no longer than their sessions last.
func TestWaitersDie(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const path = root + "/death/waiters"
	java, golang := w.peer(curator), w.peer(ours)
	holder, doomedJava := java.actor("holder", longSession), w.own(curator)
	holder.do("lock", "mutex", path)
	doomed := w.own(ours)
	w.queue(doomed.actor("doomed", shortSession), "mutex", path)
	w.queue(doomedJava.actor("doomed", shortSession), "mutex", path)
	next, last := java.actor("next", longSession), golang.actor("last", longSession)
	w.queue(next, "mutex", path)
	w.queue(last, "mutex", path)
	doomed.kill()
	doomedJava.kill()
	holder.do("unlock")
	next.ok("lock")
	mustWait("another actor has it", last)
	next.do("unlock")
	last.ok("lock")
}

// A client that ends its session frees its locks at once.
func TestHolderCloses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	for _, c := range []struct {
		name           string
		holder, waiter *peer
	}{{"curator", java, golang}, {"holdfast", golang, java}} {
		for _, kind := range []string{"mutex", "read", "semaphore"} {
			path := root + "/closing/" + c.name + "/" + kind
			holder, waiter := c.holder.actor(c.name+kind, longSession), c.waiter.actor(c.name+kind, longSession)
			holder.do("lock", kind, path)
			if kind == "read" {
				w.queue(waiter, "write", path)
			} else {
				w.queue(waiter, kind, path)
			}
			mustWait("the holder is alive", waiter)
			holder.do("close")
			waiter.ok("lock")
			waiter.do("unlock")
		}
	}
}
