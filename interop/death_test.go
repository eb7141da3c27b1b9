package interop

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
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
		{"Curator halts", curator, ours, func(p *peer) { p.actors["mutex"].Send("halt"); <-p.Done() }},
		{"holdfast is killed", ours, curator, func(p *peer) { p.Kill() }},
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
				dead.actor(kind, shortSession).Do("lock", kind, path+kind)
				node[kind] = w.until(folder[kind], 1)[0]
				waiting = append(waiting, alive.actor(kind, longSession))
				w.queue(alive.actors[kind], kind, path+kind)
			}
			remote.MustWait("the holder is alive", waiting...)
			c.die(dead)
			for _, a := range waiting {
				a.OK("lock")
				if left := w.nodes(folder[a.Name]); slices.Contains(left, node[a.Name]) {
					t.Errorf("%s got the lock while the session of the dead holder existed: %q", a, left)
				}
				a.Do("unlock")
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
	holder.Do("lock", "mutex", path)
	doomed := w.own(ours)
	w.queue(doomed.actor("doomed", shortSession), "mutex", path)
	w.queue(doomedJava.actor("doomed", shortSession), "mutex", path)
	next, last := java.actor("next", longSession), golang.actor("last", longSession)
	w.queue(next, "mutex", path)
	w.queue(last, "mutex", path)
	doomed.Kill()
	doomedJava.Kill()
	holder.Do("unlock")
	next.OK("lock")
	remote.MustWait("another actor has it", last)
	next.Do("unlock")
	last.OK("lock")
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
			holder.Do("lock", kind, path)
			if kind == "read" {
				w.queue(waiter, "write", path)
			} else {
				w.queue(waiter, kind, path)
			}
			remote.MustWait("the holder is alive", waiter)
			holder.Do("close")
			waiter.OK("lock")
			waiter.Do("unlock")
		}
	}
}
