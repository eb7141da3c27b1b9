package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// A waiter that gives up leaves nothing behind, and does not disturb the queue.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	for _, c := range []struct {
		name           string
		holder, waiter *peer
	}{{"curator", java, golang}, {"holdfast", golang, java}} {
		for _, kind := range []string{"mutex", "write", "read", "semaphore"} {
			path := root + "/patience/" + c.name + "/" + kind
			holder, waiter := c.holder.actor(c.name+kind, longSession), c.waiter.actor(c.name+kind, longSession)
			next := c.holder.actor(c.name+kind+"next", longSession)
			patience := 2 * time.Second
			for ; !w.givesUp(holder, waiter, next, kind, path, patience); patience *= 4 { // the machine was busy
				if patience > time.Minute/2 {
					t.Fatalf("%s did not wait for the %s in front of another", waiter, kind)
				}
			}
		}
	}
}

// givesUp lets the waiter give up a lock that the holder has. It reports whether the next one was in the
// queue by then.
func (w *world) givesUp(holder, waiter, next *actor, kind, path string, patience time.Duration) (behind bool) {
	w.t.Helper()
	folder, blocker := contenders(kind, path), kind
	if kind == "read" {
		blocker = "write"
	}
	holder.Do("lock", blocker, path)
	before := len(w.nodes(folder))
	mustBeBusy(waiter, kind, path, 0)
	w.until(folder, before)
	waiter.Send("try", kind, path, patience.Milliseconds())
	eventually(func() bool { return len(w.nodes(folder)) == before+1 || waiter.Answered() })
	next.Send("lock", kind, path)
	eventually(func() bool {
		behind = len(w.nodes(folder)) == before+2
		return behind || waiter.Answered()
	})
	if r := waiter.Reply(); r != "busy" {
		w.t.Fatalf("%s got a %s that another actor has: %s", waiter, kind, r)
	}
	w.until(folder, before+1) // next
	remote.MustWait("the holder has it", next)
	holder.Do("unlock")
	next.OK("lock")
	next.Do("unlock")
	w.until(folder, 0)
	return behind
}

// The lock of the usual Go client excludes both sides, and both exclude it.
func TestThirdParty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang, third := w.peer(curator), w.peer(ours), w.peer(stock)
	const path = root + "/third"
	line := []*actor{
		third.actor("a", longSession), java.actor("b", longSession), golang.actor("c", longSession),
		third.actor("d", longSession), golang.actor("e", longSession),
		third.actor("f", longSession), java.actor("g", longSession), third.actor("h", longSession),
	}
	line[0].Do("lock", "mutex", path)
	mustBeBusy(line[1], "mutex", path, 300*time.Millisecond)
	mustBeBusy(line[2], "mutex", path, 300*time.Millisecond)
	mustBeBusy(line[2], "mutex", path, 0)
	for _, a := range line[1:] {
		w.queue(a, "mutex", path)
	}
	for i, a := range line {
		if i > 0 {
			a.OK("lock")
		}
		remote.MustWait(a.String()+" holds it", line[i+1:]...)
		a.Do("unlock")
	}
}

// A chroot of Curator's connection, or a namespace, is a part of holdfast's root.
func TestChroot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	golang := w.peer(ours).actor("a", longSession)
	golang.Do("lock", "mutex", root+"/orders/42")
	java := w.peer(curator).actor("a", longSession, root)
	mustBeBusy(java, "mutex", "/orders/42", 300*time.Millisecond)
	golang.Do("unlock")
	java.Do("lock", "mutex", "/orders/42")
	mustBeBusy(golang, "mutex", root+"/orders/42", 0)
	java.Do("unlock")
}

// A lock that nobody uses leaves no nodes, whoever used it first: its folders are containers. Its
// tokens and its queue do not depend on the deleted folders.
func TestFoldersGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator).actor("a", longSession), w.peer(ours).actor("a", longSession)
	for _, a := range []*actor{java, golang} {
		for _, kind := range []string{"mutex", "read", "semaphore"} {
			a.Do("lock", kind, root+"/deep/"+kind+"/below")
			a.Do("unlock")
		}
		gone := eventually(func() bool {
			there, _, err := w.observer.Exists(root + "/deep")
			if err != nil {
				t.Fatal(err)
			}
			return !there
		})
		if !gone {
			t.Errorf("%s left %q in %s", a, w.nodes(root+"/deep"), root+"/deep")
		}
	}
}

// Curator's revocation writes to the holder's node, which asks a holder that supports it to give
// up. Holdfast does not support it, and may refuse the write: it keeps the lock in both cases.
func TestRevocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours).actor("a", longSession)
	const path = root + "/revoked"
	golang.Do("lock", "mutex", path)
	waiter, revoker := java.actor("waiter", longSession), java.actor("revoker", longSession)
	w.queue(waiter, "mutex", path)
	revoker.Send("revoke", path)
	if r := revoker.Reply(); r != "ok" && !strings.Contains(r, "NoAuth") {
		t.Errorf("revoke: %s", r)
	}
	remote.MustWait("the holder keeps it", waiter)
	w.until(path, 2)
	golang.Do("unlock")
	waiter.OK("lock")
	waiter.Do("unlock")
}

// Somebody deletes a waiter's node. The waiter must queue again and get the lock.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/deleted"
	holder, waiter, next := java.actor("holder", longSession), golang.actor("waiter", longSession), java.actor("next",
		longSession)
	holder.Do("lock", "mutex", path)
	w.queue(waiter, "mutex", path)
	w.queue(next, "mutex", path)
	if err := w.observer.Delete(path+"/"+w.until(path, 3)[1], -1); err != nil {
		t.Fatal(err)
	}
	remote.MustWait("the holder has it", waiter, next)
	holder.Do("unlock")
	next.OK("lock")
	w.until(path, 2)
	remote.MustWait("another actor has it", waiter)
	next.Do("unlock")
	waiter.OK("lock")
	waiter.Do("unlock")
	w.until(path, 0)
}

// Curator treats every node in a lock's folder as a contender. So holdfast must not leave other
// nodes there.
func TestNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	golang := w.peer(ours).actor("a", longSession)
	for _, kind := range []string{"mutex", "write", "read", "semaphore"} {
		path := root + "/tidy/" + kind
		golang.Do("lock", kind, path)
		folder, want := path, 1
		if kind == "semaphore" {
			folder = path + "/leases"
			if names := w.nodes(path + "/locks"); len(names) > 0 {
				t.Errorf("the holder of a permit is in the queue: %q", names)
			}
		}
		if names := w.nodes(folder); len(names) != want {
			t.Errorf("one %s has the nodes %q", kind, names)
		}
		golang.Do("unlock")
		if names, _, err := w.observer.Children(folder); len(names) > 0 || err != nil && err != zk.ErrNoNode {
			t.Errorf("after the release of a %s: %q, %v", kind, names, err)
		}
	}
}
