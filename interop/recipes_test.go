package interop

import (
	"fmt"
	"testing"
	"time"
)

// Several permits at once: holdfast takes all or none, and in its turn; Curator takes them one
// after the other, and lets others in between.
func TestSeveralPermits(t *testing.T) {
	w, java, golang := oursAlone(t)
	const path, limit = root + "/several", 4
	one, three, all := java.actor("one", long), golang.actor("three", long), golang.actor("all", long)
	two, last := java.actor("two", long), golang.actor("last", long)
	one.do("lock", "semaphore", path, limit, 1)
	three.do("lock", "semaphore", path, limit, 3)
	w.until(path+"/leases", limit)
	w.queue(all, "semaphore", path, limit, limit)
	w.queue(two, "semaphore", path, limit, 2)
	w.queue(last, "semaphore", path, limit, 1)
	three.do("unlock")
	blocked("all permits are wanted, by somebody who came earlier", all, two, last)
	one.do("unlock")
	all.ok("lock") // and Curator, which is next, adds the node of its first permit before it fits
	blocked("all permits are taken", two, last)
	all.do("unlock")
	two.ok("lock")
	last.ok("lock")
	w.until(path+"/leases", 3)
	one.busy("semaphore", path, 300*time.Millisecond, limit, 2)
	three.busy("semaphore", path, 0, limit, 2)
	two.do("unlock")
	last.do("unlock")
	w.until(path+"/leases", 0)
	w.until(path+"/locks", 0)
}

// Recipes of Curator that are made of the others: a LeaderSelector is a mutex, as an Election
// is; an InterProcessSemaphoreMutex is a semaphore with one permit.
func TestDerivedRecipes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	for _, c := range []struct{ theirs, mine, folder string }{
		{"leader", "leader", "mutex"},
		{"leader", "mutex", "mutex"},
		{"semaphore-mutex", "semaphore", "semaphore"},
	} {
		if control && c.mine == "leader" {
			continue // two of one session are the same to nobody, but one of each is enough
		}
		id := c.theirs + "-" + c.mine
		path := root + "/derived/" + id
		folder := contenders(c.folder, path)
		a, b, d := java.actor(id+"a", long), golang.actor(id+"b", long), java.actor(id+"c", long)
		a.do("lock", c.theirs, path)
		n := len(w.nodes(folder))
		b.send("lock", c.mine, path)
		w.until(folder, n+1)
		d.send("lock", c.theirs, path)
		w.until(folder, n+2)
		blocked(fmt.Sprint(a, " holds it"), b, d)
		a.do("unlock")
		b.ok("lock")
		blocked(fmt.Sprint(b, " holds it"), d)
		b.do("unlock")
		d.ok("lock")
		b.busy(c.mine, path, 300*time.Millisecond)
		d.do("unlock")
	}
}

// What holdfast alone can do with a lock leaves Curator's side of it in order.

// A lock that is handed to another session of ours does not slip to Curator meanwhile.
func TestHandOff(t *testing.T) {
	w, java, golang := oursAlone(t)
	giver, taker, waiter := golang.actor("giver", long), golang.actor("taker", long), java.actor("waiter", long)
	for _, kind := range []string{"mutex", "write", "semaphore"} {
		path := root + "/handed/" + kind
		giver.do("lock", kind, path)
		w.queue(waiter, kind, path)
		taker.do("adopt", giver.do("handoff"))
		blocked("it was handed to another", waiter)
		taker.do("unlock")
		waiter.ok("lock")
		waiter.do("unlock")
		w.until(contenders(kind, path), 0)
	}
}

// An operator of ours sees who holds and who waits, and can end Curator's grant.
func TestBreak(t *testing.T) {
	w, java, golang := oursAlone(t)
	holder, waiter, operator := java.actor("holder", long), java.actor("waiter", long), golang.actor("operator", long)
	for i, c := range []struct{ kind, seen, after string }{
		{"mutex", "lock 1 1", "lock 1 0"}, {"write", "lock 1 1", "lock 1 0"}, {"semaphore", "", "semaphore 1 0"},
	} {
		path := root + fmt.Sprint("/broken/", i)
		holder.do("lock", c.kind, path)
		w.queue(waiter, c.kind, path)
		// Curator's waiter for a permit has a lease's node already, and the limit is not stored.
		if got := operator.do("inspect", path); got != c.seen && c.seen != "" {
			t.Errorf("a %s that Curator holds and waits for is seen as %q; it is %q", c.kind, got, c.seen)
		}
		blocked("another has it", waiter)
		operator.do("break", path)
		waiter.ok("lock")
		holder.do("unlock") // Curator does not mind that its node is gone, and deletes no other
		if got := operator.do("inspect", path); got != c.after {
			t.Errorf("a %s that Curator's waiter got is seen as %q; it is %q", c.kind, got, c.after)
		}
		operator.busy(c.kind, path, 0)
		waiter.do("unlock")
	}
}

// A minimum hold keeps Curator out as well, past the release.
func TestMinHold(t *testing.T) {
	w, java, golang := oursAlone(t)
	holder, waiter := golang.actor("holder", long), java.actor("waiter", long)
	const path, minimum = root + "/kept", 2 * time.Second
	begin := time.Now()
	holder.do("lock", "kept", path, minimum.Milliseconds())
	holder.do("unlock")
	w.queue(waiter, "mutex", path)
	waiter.ok("lock")
	if d := time.Since(begin); d < minimum {
		t.Errorf("Curator has it %v after a lock that was to keep it for %v", d, minimum)
	}
	waiter.do("unlock")
	w.until(path, 0)
}

func oursAlone(t *testing.T) (w *world, java, golang *peer) {
	t.Helper()
	if control {
		t.Skip("Curator does this in another way, or not at all")
	}
	t.Parallel()
	w = newWorld(t)
	return w, w.peer(curator), w.peer(ours)
}
