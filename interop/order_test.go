package interop

import (
	"fmt"
	"testing"
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
	line[0].do("lock", "mutex", path)
	for _, a := range line[1:] {
		w.queue(a, "mutex", path)
	}
	for i, a := range line {
		if i > 0 {
			a.ok("lock")
		}
		mustWait(fmt.Sprint(a, " holds it"), line[i+1:]...)
		a.do("unlock")
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
				a.do("lock", g.kind, path)
				continue
			}
			w.queue(a, g.kind, path)
			behind = append(behind, a)
		}
	}
	for i, g := range groups {
		if i > 0 {
			for _, a := range g.actors {
				a.ok("lock")
			}
			behind = behind[len(g.actors):]
		}
		for n, a := range g.actors {
			mustWait(fmt.Sprint(g.actors[n:], " hold it for ", g.kind), behind...)
			a.do("unlock")
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
	line[0].do("lock", "semaphore", path, 2)
	line[1].do("lock", "semaphore", path, 2)
	line[2].mustBeBusy("semaphore", path, 300e6, 2)
	line[3].mustBeBusy("semaphore", path, 300e6, 2)
	line[3].mustBeBusy("semaphore", path, 0, 2)
	w.until(path+"/leases", 2) // the waiter that gave up has left nothing
	w.until(path+"/locks", 0)
	w.queue(line[2], "semaphore", path, 2)
	w.queue(line[3], "semaphore", path, 2)
	mustWait("both permits are taken", line[2:]...)
	line[1].do("unlock")
	line[2].ok("lock")
	mustWait("both permits are taken", line[3])
	line[0].do("unlock")
	line[3].ok("lock")
	line[2].do("unlock")
	line[3].do("unlock")
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
			holder.do("lock", "write", path)
			w.queue(reader, "read", path)
			w.queue(writer, "write", path)
			w.queue(late, "read", path)
			mustWait("a writer has it", reader, writer, late)
			holder.do("downgrade")
			reader.ok("lock")
			mustWait("two read", writer, late)
			reader.do("unlock")
			mustWait("a former writer reads", writer, late)
			holder.do("unlock")
			writer.ok("lock")
			mustWait("a writer has it", late)
			writer.do("unlock")
			late.ok("lock")
			late.do("unlock")
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
			holder.do("lock", "write", path)
			w.queue(writer, "write", path)
			holder.do("downgrade")
			mustWait("a former writer reads", writer)
			reader.mustBeBusy("read", path, 300e6) // it would overtake the writer
			w.until(path, 2)
			holder.do("unlock")
			writer.ok("lock")
			writer.do("downgrade")
			reader.do("lock", "read", path)
			reader.do("unlock")
			writer.do("unlock")
		})
	}
}
