package interop

import (
	"fmt"
	"testing"
)

// There is one line for both sides: each release lets in exactly the next.
func TestMutexOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/order/mutex"
	line := []*actor{
		java.actor("a", long), golang.actor("b", long), java.actor("c", long), golang.actor("d", long), golang.actor("e", long), java.actor("f", long),
	}
	line[0].do("lock", "mutex", path)
	for _, a := range line[1:] {
		w.queue(a, "mutex", path)
	}
	for i, a := range line {
		if i > 0 {
			a.ok("lock")
		}
		blocked(fmt.Sprint(a, " holds it"), line[i+1:]...)
		a.do("unlock")
	}
}

// Readers that stand together go in together, and never past a writer.
func TestReadWriteOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/order/rw"
	groups := []struct {
		kind string
		who  []*actor
	}{
		{"write", []*actor{java.actor("a", long)}},
		{"read", []*actor{golang.actor("b", long), java.actor("c", long), golang.actor("d", long)}},
		{"write", []*actor{golang.actor("e", long)}},
		{"read", []*actor{java.actor("f", long), golang.actor("g", long)}},
		{"write", []*actor{golang.actor("h", long)}},
		{"write", []*actor{java.actor("i", long)}},
		{"read", []*actor{golang.actor("j", long)}},
		{"write", []*actor{java.actor("k", long)}},
	}
	var behind []*actor
	for i, g := range groups {
		for _, a := range g.who {
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
			for _, a := range g.who {
				a.ok("lock")
			}
			behind = behind[len(g.who):]
		}
		for n, a := range g.who {
			blocked(fmt.Sprint(g.who[n:], " hold it for ", g.kind), behind...)
			a.do("unlock")
		}
	}
}

// Permits are shared: whoever gives one back lets in one of those who wait.
func TestSemaphoreOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	const path = root + "/order/semaphore"
	line := []*actor{java.actor("a", long), golang.actor("b", long), java.actor("c", long), golang.actor("d", long)}
	line[0].do("lock", "semaphore", path, 2)
	line[1].do("lock", "semaphore", path, 2)
	line[2].busy("semaphore", path, 300e6, 2)
	line[3].busy("semaphore", path, 300e6, 2)
	line[3].busy("semaphore", path, 0, 2)
	w.until(path+"/leases", 2) // who gave up has left nothing
	w.until(path+"/locks", 0)
	w.queue(line[2], "semaphore", path, 2)
	w.queue(line[3], "semaphore", path, 2)
	blocked("both permits are taken", line[2:]...)
	line[1].do("unlock")
	line[2].ok("lock")
	blocked("both permits are taken", line[3])
	line[0].do("unlock")
	line[3].ok("lock")
	line[2].do("unlock")
	line[3].do("unlock")
	w.until(path+"/leases", 0)
}

// A writer that turns into a reader lets in the readers at the head of the line, and no
// writer, not even one that has waited longer than a reader's new node exists.
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
			holder, reader := first.actor("holder", long), second.actor("reader", long)
			writer, late := second.actor("writer", long), second.actor("late", long)
			holder.do("lock", "write", path)
			w.queue(reader, "read", path)
			w.queue(writer, "write", path)
			w.queue(late, "read", path)
			blocked("a writer has it", reader, writer, late)
			holder.do("downgrade")
			reader.ok("lock")
			blocked("two read", writer, late)
			reader.do("unlock")
			blocked("one reads who had it for writing", writer, late)
			holder.do("unlock")
			writer.ok("lock")
			blocked("a writer has it", late)
			writer.do("unlock")
			late.ok("lock")
			late.do("unlock")
		})
	}
}

// The same with nobody in between: the writer that waits stands right behind the node of
// which the new reader's takes the number.
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
			holder, writer, reader := first.actor("holder", long), second.actor("writer", long), second.actor("reader", long)
			holder.do("lock", "write", path)
			w.queue(writer, "write", path)
			holder.do("downgrade")
			blocked("one reads who had it for writing", writer)
			reader.busy("read", path, 300e6) // it would overtake the writer
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
