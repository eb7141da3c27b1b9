package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Who gives up leaves nothing behind, and does not disturb the line.
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
			folder := contenders(kind, path)
			holder, waiter := c.holder.actor(c.name+kind, long), c.waiter.actor(c.name+kind, long)
			next := c.holder.actor(c.name+kind+"next", long)
			blocker := kind
			if kind == "read" {
				blocker = "write"
			}
			holder.do("lock", blocker, path)
			before := len(w.nodes(folder))
			waiter.busy(kind, path, 0)
			w.until(folder, before)
			waiter.send("try", kind, path, 2000)
			w.until(folder, before+1)
			w.queue(next, kind, path)
			if r := waiter.reply(); r != "busy" {
				t.Fatalf("%s got a %s that another has: %s", waiter, kind, r)
			}
			w.until(folder, before+1) // next
			blocked("the holder has it", next)
			holder.do("unlock")
			next.ok("lock")
			next.do("unlock")
			w.until(folder, 0)
		}
	}
}

// The lock of the usual Go client excludes both, and is excluded by both.
func TestThirdParty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang, third := w.peer(curator), w.peer(ours), w.peer(stock)
	const path = root + "/third"
	line := []*actor{
		third.actor("a", long), java.actor("b", long), golang.actor("c", long), third.actor("d", long), golang.actor("e", long),
		third.actor("f", long), java.actor("g", long), third.actor("h", long),
	}
	line[0].do("lock", "mutex", path)
	line[1].busy("mutex", path, 300*time.Millisecond)
	line[2].busy("mutex", path, 300*time.Millisecond)
	line[2].busy("mutex", path, 0)
	for _, a := range line[1:] {
		w.queue(a, "mutex", path)
	}
	for i, a := range line {
		if i > 0 {
			a.ok("lock")
		}
		blocked(a.String()+" holds it", line[i+1:]...)
		a.do("unlock")
	}
}

// A chroot of Curator's connection, or a namespace, is a part of our root.
func TestChroot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	golang := w.peer(ours).actor("a", long)
	golang.do("lock", "mutex", root+"/orders/42")
	java := w.peer(curator).actor("a", long, root)
	java.busy("mutex", "/orders/42", 300*time.Millisecond)
	golang.do("unlock")
	java.do("lock", "mutex", "/orders/42")
	golang.busy("mutex", root+"/orders/42", 0)
	java.do("unlock")
}

// A lock that nobody uses any more leaves no nodes, whoever used it first: its folders are
// containers. Its tokens and its line do not depend on what is gone.
func TestFoldersGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator).actor("a", long), w.peer(ours).actor("a", long)
	for _, a := range []*actor{java, golang} {
		for _, kind := range []string{"mutex", "read", "semaphore"} {
			a.do("lock", kind, root+"/deep/"+kind+"/below")
			a.do("unlock")
		}
		gone := eventually(func() bool {
			there, _, err := w.eyes.Exists(root + "/deep")
			if err != nil {
				t.Fatal(err)
			}
			return !there
		})
		if !gone {
			t.Errorf("%s has left %q in %s", a, w.nodes(root+"/deep"), root+"/deep")
		}
	}
}

// Curator's revocation writes into the holder's node, which asks a holder that listens to give
// up. Ours does not listen, and may refuse the writing: it keeps the lock either way.
func TestRevocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours).actor("a", long)
	const path = root + "/revoked"
	golang.do("lock", "mutex", path)
	waiter, revoker := java.actor("waiter", long), java.actor("revoker", long)
	w.queue(waiter, "mutex", path)
	revoker.send("revoke", path)
	if r := revoker.reply(); r != "ok" && !strings.Contains(r, "NoAuth") {
		t.Errorf("revoke: %s", r)
	}
	blocked("the holder keeps it", waiter)
	w.until(path, 2)
	golang.do("unlock")
	waiter.ok("lock")
	waiter.do("unlock")
}

// Somebody deletes the node of one who waits. It is to queue up anew, and to be served.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/deleted"
	holder, waiter, next := java.actor("holder", long), golang.actor("waiter", long), java.actor("next", long)
	holder.do("lock", "mutex", path)
	w.queue(waiter, "mutex", path)
	w.queue(next, "mutex", path)
	if err := w.eyes.Delete(path+"/"+w.until(path, 3)[1], -1); err != nil {
		t.Fatal(err)
	}
	blocked("the holder has it", waiter, next)
	holder.do("unlock")
	next.ok("lock")
	w.until(path, 2)
	blocked("another has it", waiter)
	next.do("unlock")
	waiter.ok("lock")
	waiter.do("unlock")
	w.until(path, 0)
}

// What stands in a lock's folder and is no contender of Curator's is one nevertheless, for
// Curator: ours must not leave such nodes there.
func TestNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	golang := w.peer(ours).actor("a", long)
	for _, kind := range []string{"mutex", "write", "read", "semaphore"} {
		path := root + "/tidy/" + kind
		golang.do("lock", kind, path)
		folder, want := path, 1
		if kind == "semaphore" {
			folder = path + "/leases"
			if names := w.nodes(path + "/locks"); len(names) > 0 {
				t.Errorf("the holder of a permit stands in line: %q", names)
			}
		}
		if names := w.nodes(folder); len(names) != want {
			t.Errorf("one %s has the nodes %q", kind, names)
		}
		golang.do("unlock")
		if names, _, err := w.eyes.Children(folder); len(names) > 0 || err != nil && err != zk.ErrNoNode {
			t.Errorf("after the release of a %s: %q, %v", kind, names, err)
		}
	}
}
