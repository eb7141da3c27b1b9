package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// Several permits at once: holdfast takes all or none, and keeps its place meanwhile. Curator takes
// them one after the other, and lets others in between.
func TestSeveralPermits(t *testing.T) {
	w, java, golang := holdfastOnly(t)
	const path, limit = root + "/several", 4
	one, three, all := java.actor("one", longSession), golang.actor("three", longSession), golang.actor("all", longSession)
	two, last := java.actor("two", longSession), golang.actor("last", longSession)
	one.Do("lock", "semaphore", path, limit, 1)
	three.Do("lock", "semaphore", path, limit, 3)
	w.until(path+"/leases", limit)
	w.queue(all, "semaphore", path, limit, limit)
	w.queue(two, "semaphore", path, limit, 2)
	w.queue(last, "semaphore", path, limit, 1)
	three.Do("unlock")
	remote.MustWait("an earlier request wants all permits", all, two, last)
	one.Do("unlock")
	all.OK("lock") // Curator is next: it adds the node of its first permit before the permit fits
	remote.MustWait("all permits are taken", two, last)
	all.Do("unlock")
	two.OK("lock")
	last.OK("lock")
	w.until(path+"/leases", 3)
	mustBeBusy(one, "semaphore", path, 300*time.Millisecond, limit, 2)
	mustBeBusy(three, "semaphore", path, 0, limit, 2)
	two.Do("unlock")
	last.Do("unlock")
	w.until(path+"/leases", 0)
	w.until(path+"/locks", 0)
}

// Recipes of Curator that use the others: a LeaderSelector is a mutex, as an Election is; an
// InterProcessSemaphoreMutex is a semaphore with one permit.
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
			continue // two of one session: one of each is enough
		}
		id := c.theirs + "-" + c.mine
		path := root + "/derived/" + id
		folder := contenders(c.folder, path)
		a, b, d := java.actor(id+"a", longSession), golang.actor(id+"b", longSession), java.actor(id+"c", longSession)
		a.Do("lock", c.theirs, path)
		n := len(w.nodes(folder))
		b.Send("lock", c.mine, path)
		w.until(folder, n+1)
		d.Send("lock", c.theirs, path)
		w.until(folder, n+2)
		remote.MustWait(fmt.Sprint(a, " holds it"), b, d)
		a.Do("unlock")
		b.OK("lock")
		remote.MustWait(fmt.Sprint(b, " holds it"), d)
		b.Do("unlock")
		d.OK("lock")
		mustBeBusy(b, c.mine, path, 300*time.Millisecond)
		d.Do("unlock")
	}
}

// Features that only holdfast has do not disturb Curator on the same lock.

// A lock that is handed to another session of holdfast does not go to Curator in between.
func TestHandOff(t *testing.T) {
	w, java, golang := holdfastOnly(t)
	giver, taker, waiter := golang.actor("giver", longSession), golang.actor("taker", longSession), java.actor("waiter",
		longSession)
	for _, kind := range []string{"mutex", "write", "semaphore"} {
		path := root + "/handed/" + kind
		giver.Do("lock", kind, path)
		w.queue(waiter, kind, path)
		taker.Do("adopt", giver.Do("handoff"))
		remote.MustWait("the lock was handed to another actor", waiter)
		taker.Do("unlock")
		waiter.OK("lock")
		waiter.Do("unlock")
		w.until(contenders(kind, path), 0)
	}
}

// An operator of holdfast sees holders and waiters, and can end Curator's grant.
func TestBreak(t *testing.T) {
	w, java, golang := holdfastOnly(t)
	holder, waiter, operator := java.actor("holder", longSession), java.actor("waiter",
		longSession), golang.actor("operator", longSession)
	for i, c := range []struct{ kind, seen, after string }{
		{"mutex", "lock 1 1", "lock 1 0"}, {"write", "lock 1 1", "lock 1 0"}, {"semaphore", "", "semaphore 1 0"},
	} {
		path := root + fmt.Sprint("/broken/", i)
		holder.Do("lock", c.kind, path)
		w.queue(waiter, c.kind, path)
		// Curator's waiter for a permit has a node in leases already, and the limit is not stored.
		if got := operator.Do("inspect", path); got != c.seen && c.seen != "" {
			t.Errorf("inspect of a %s that Curator holds and waits for: %q; want %q", c.kind, got, c.seen)
		}
		remote.MustWait("another actor has it", waiter)
		operator.Do("break", path)
		waiter.OK("lock")
		holder.Do("unlock") // Curator ignores that its node is gone, and deletes no other
		if got := operator.Do("inspect", path); got != c.after {
			t.Errorf("inspect of a %s that Curator's waiter got: %q; want %q", c.kind, got, c.after)
		}
		mustBeBusy(operator, c.kind, path, 0)
		waiter.Do("unlock")
	}
}

// A minimum hold also keeps Curator out, after the release.
func TestMinHold(t *testing.T) {
	w, java, golang := holdfastOnly(t)
	holder, waiter := golang.actor("holder", longSession), java.actor("waiter", longSession)
	const path, minimum = root + "/kept", 2 * time.Second
	begin := time.Now()
	holder.Do("lock", "kept", path, minimum.Milliseconds())
	holder.Do("unlock")
	w.queue(waiter, "mutex", path)
	waiter.OK("lock")
	if d := time.Since(begin); d < minimum {
		t.Errorf("Curator got the lock %v after it was taken; the minimum hold is %v", d, minimum)
	}
	waiter.Do("unlock")
	w.until(path, 0)
}

func holdfastOnly(t *testing.T) (w *world, java, golang *peer) {
	t.Helper()
	if control {
		t.Skip("Curator does not have this feature, or does it in another way")
	}
	t.Parallel()
	w = newWorld(t)
	return w, w.peer(curator), w.peer(ours)
}
