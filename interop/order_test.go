package interop

import (
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// There is one queue for both sides: each release lets in exactly the next contender.
func TestMutexOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/order/mutex"
	line := []*actor{
		java.actor("a", longSession), golang.actor("b", longSession), java.actor("c", longSession),
		golang.actor("d", longSession), golang.actor("e", longSession), java.actor("f", longSession),
	}
	line[0].Do("lock", "mutex", path)
	for _, a := range line[1:] {
		w.queue(a, "mutex", path)
	}
	for i, a := range line {
		if i > 0 {
			a.OK("lock")
		}
		remote.MustWait(fmt.Sprint(a, " holds it"), line[i+1:]...)
		a.Do("unlock")
	}
}

// Readers next to each other in the queue enter together, and never pass a writer.
func TestReadWriteOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/order/rw"
	groups := []struct {
		kind   string
		actors []*actor
	}{
		{"write", []*actor{java.actor("a", longSession)}},
		{"read", []*actor{golang.actor("b", longSession), java.actor("c", longSession), golang.actor("d", longSession)}},
		{"write", []*actor{golang.actor("e", longSession)}},
		{"read", []*actor{java.actor("f", longSession), golang.actor("g", longSession)}},
		{"write", []*actor{golang.actor("h", longSession)}},
		{"write", []*actor{java.actor("i", longSession)}},
		{"read", []*actor{golang.actor("j", longSession)}},
		{"write", []*actor{java.actor("k", longSession)}},
	}
	var behind []*actor
	for i, g := range groups {
		for _, a := range g.actors {
			if i == 0 {
				a.Do("lock", g.kind, path)
				continue
			}
			w.queue(a, g.kind, path)
			behind = append(behind, a)
		}
	}
	for i, g := range groups {
		if i > 0 {
			for _, a := range g.actors {
				a.OK("lock")
			}
			behind = behind[len(g.actors):]
		}
		for n, a := range g.actors {
			remote.MustWait(fmt.Sprint(g.actors[n:], " hold it for ", g.kind), behind...)
			a.Do("unlock")
		}
	}
}

// Permits are shared: each release lets in one of the waiters.
func TestSemaphoreOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/order/semaphore"
	line := []*actor{java.actor("a", longSession), golang.actor("b", longSession), java.actor("c", longSession),
		golang.actor("d", longSession)}
	line[0].Do("lock", "semaphore", path, 2)
	line[1].Do("lock", "semaphore", path, 2)
	mustBeBusy(line[2], "semaphore", path, 300e6, 2)
	mustBeBusy(line[3], "semaphore", path, 300e6, 2)
	mustBeBusy(line[3], "semaphore", path, 0, 2)
	w.until(path+"/leases", 2) // the waiter that gave up has left nothing
	w.until(path+"/locks", 0)
	w.queue(line[2], "semaphore", path, 2)
	w.queue(line[3], "semaphore", path, 2)
	remote.MustWait("both permits are taken", line[2:]...)
	line[1].Do("unlock")
	line[2].OK("lock")
	remote.MustWait("both permits are taken", line[3])
	line[0].Do("unlock")
	line[3].OK("lock")
	line[2].Do("unlock")
	line[3].Do("unlock")
	w.until(path+"/leases", 0)
}

// A writer that becomes a reader lets in the readers at the head of the queue, and no writer. That
// includes a writer that has waited for longer than the reader's new node exists.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		holder, other side
	}{{"Curator", curator, ours}, {"holdfast", ours, curator}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, second := w.peer(c.holder), w.peer(c.other)
			path := root + "/downgrade/" + c.name
			holder, reader := first.actor("holder", longSession), second.actor("reader", longSession)
			writer, late := second.actor("writer", longSession), second.actor("late", longSession)
			holder.Do("lock", "write", path)
			w.queue(reader, "read", path)
			w.queue(writer, "write", path)
			w.queue(late, "read", path)
			remote.MustWait("a writer has it", reader, writer, late)
			holder.Do("downgrade")
			reader.OK("lock")
			remote.MustWait("two read", writer, late)
			reader.Do("unlock")
			remote.MustWait("a former writer reads", writer, late)
			holder.Do("unlock")
			writer.OK("lock")
			remote.MustWait("a writer has it", late)
			writer.Do("unlock")
			late.OK("lock")
			late.Do("unlock")
		})
	}
}

// The same with nobody in between: the waiting writer is right behind the node whose number the new
// reader's node takes.
func TestDowngradeBeforeWriter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		holder, other side
	}{{"Curator", curator, ours}, {"holdfast", ours, curator}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, second := w.peer(c.holder), w.peer(c.other)
			path := root + "/downgrade-before/" + c.name
			holder, writer, reader := first.actor("holder", longSession), second.actor("writer",
				longSession), second.actor("reader", longSession)
			holder.Do("lock", "write", path)
			w.queue(writer, "write", path)
			holder.Do("downgrade")
			remote.MustWait("a former writer reads", writer)
			mustBeBusy(reader, "read", path, 300e6) // it would overtake the writer
			w.until(path, 2)
			holder.Do("unlock")
			writer.OK("lock")
			writer.Do("downgrade")
			reader.Do("lock", "read", path)
			reader.Do("unlock")
			writer.Do("unlock")
		})
	}
}
