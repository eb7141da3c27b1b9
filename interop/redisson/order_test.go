package redisson

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// A fair lock has one queue for both sides: each release lets in exactly the next one.
func TestFairOrder(t *testing.T) {
	each(t, []place{server, cluster}, func(w *world) {
		name := w.name("fair")
		var line []*actor
		for i, s := range []*side{w.java(), w.ours(), w.java(), w.ours(), w.ours(), w.java()} {
			line = append(line, w.actor(s, fmt.Sprint("a", i), long))
		}
		line[0].Do("lock", "fair", name)
		for i, a := range line[1:] {
			a.Send("lock", "fair", name)
			w.waiting("fair", name, i+1)
		}
		begin := time.Now()
		for i, a := range line {
			if i > 0 {
				a.OK("lock")
				if took := time.Since(begin); took > long/2 {
					w.t.Errorf("%s came in %v after a release by %s", a, took, line[i-1])
				}
			}
			remote.MustWait(fmt.Sprint(a, " holds it"), line[i+1:]...)
			begin = time.Now()
			a.Do("unlock")
		}
	})
}

// Readers of both sides are inside together, and no writer is.
func TestReadersTogether(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		for _, d := range w.directions() {
			title := named(d)
			name := w.name(title)
			first, second := w.actor(d.first, title+"-first", long), w.actor(d.other, title+"-second", long)
			writer := w.actor(d.other, title+"-writer", long)
			first.Do("lock", "read", name)
			second.Do("lock", "read", name)
			writer.Send("lock", "write", name)
			w.waiting("write", name, 1)
			first.Do("unlock")
			remote.MustWait("a reader of its own side is left", writer)
			mustBeBusy(first, "write", name)
			second.Do("unlock")
			writer.OK("lock")
			mustBeBusy(first, "read", name)
			writer.Do("unlock")
		}
	})
}

// The longest lease of all readers counts. It is over when the last reader has gone or died.
func TestReadersLeases(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		for _, d := range w.directions() {
			title := named(d)
			name := w.name(title)
			short1, long1 := w.actor(d.first, title+"-short", short), w.actor(d.other, title+"-long", long)
			short1.Do("lock", "read", name)
			long1.Do("lock", "read", name)
			if left := w.left(name); left < long/2 {
				w.t.Errorf("%s: with a reader of %v the lock lives on for %v only", title, long, left)
			}
			long1.Do("unlock")
			if left := w.left(name); left == 0 || left > short {
				w.t.Errorf("%s: with a reader of %v the lock lives on for %v", title, short, left)
			}
			short1.Do("held")
			mustBeBusy(long1, "write", name)
			short1.Do("unlock")
			long1.Do("lock", "write", name)
			long1.Do("unlock")
		}
	})
}

// A writer that becomes a reader lets in readers of the other side, and no writer. Holdfast wakes
// them. Redisson does not: they come in when the lease that they know of is over.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	each(t, []place{server, cluster}, func(w *world) {
		w.t.Parallel()
		for _, d := range w.directions() {
			title := named(d)
			name := w.name(title)
			bound := promptly * 5
			ttl := long
			if d.first == w.java() || control {
				ttl, bound = short, short+long/2
			}
			holder := w.actor(d.first, title+"-holder", ttl)
			reader, writer := w.actor(d.other, title+"-reader", long), w.actor(d.other, title+"-writer", long)
			holder.Do("lock", "write", name)
			mustBeBusy(reader, "read", name)
			reader.Send("lock", "read", name)
			w.waiting("read", name, 1)
			remote.MustWait("a writer has it", reader)
			begin := time.Now()
			holder.Do("downgrade")
			reader.OK("lock")
			if took := time.Since(begin); took > bound {
				w.t.Errorf("%s: the reader came in after %v", title, took)
			} else {
				w.t.Logf("%s: the reader came in after %v", title, took.Round(time.Millisecond))
			}
			holder.Do("held")
			mustBeBusy(writer, "write", name)
			reader.Do("unlock")
			mustBeBusy(writer, "write", name)
			holder.Do("unlock")
			writer.Do("lock", "write", name)
			writer.Do("unlock")
		}
	})
}

// The permits of a semaphore are shared.
func TestPermits(t *testing.T) {
	each(t, []place{server, cluster}, func(w *world) {
		for _, kind := range []string{"semaphore", "permit"} {
			name := w.name(kind)
			var line []*actor
			for i, s := range []*side{w.java(), w.ours(), w.java(), w.ours()} {
				line = append(line, w.actor(s, fmt.Sprint(kind, i), long))
			}
			line[0].Do("setpermits", kind, name, 2)
			line[0].Do("lock", kind, name)
			line[1].Do("lock", kind, name)
			if n := line[2].Do("permits", kind, name); n != "0" {
				w.t.Errorf("%s: %s permits are free, want 0", kind, n)
			}
			for _, a := range line[2:] {
				mustBeBusy(a, kind, name)
				a.Send("lock", kind, name)
			}
			w.waiting(kind, name, 2)
			remote.MustWait("both permits are taken", line[2:]...)
			line[1].Do("unlock")
			next := first(line[2:]...)
			remote.MustWait("both permits are taken", line[2:]...)
			line[0].Do("unlock")
			first(line[2:]...)
			for _, a := range line[2:] {
				a.Do("unlock")
			}
			if n := line[0].Do("permits", kind, name); n != "2" {
				w.t.Errorf("%s: %s permits are free at the end, want 2; %s was first", kind, n, next)
			}
		}
	})
}

// Several permits at once.
func TestManyPermits(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		name := w.name("many")
		java, golang := w.actor(w.java(), "java", long), w.actor(w.ours(), "ours", long)
		java.Do("setpermits", "semaphore", name, 5)
		golang.Do("lock", "semaphore", name, 0, 3)
		java.Must("busy", "try", "semaphore", name, 0, 0, 3)
		java.Do("lock", "semaphore", name, 0, 2)
		if n := java.Do("permits", "semaphore", name); n != "0" {
			w.t.Errorf("%s permits are free, want 0", n)
		}
		java.Do("unlock")
		golang.Do("unlock")
		if n := java.Do("permits", "semaphore", name); n != "5" {
			w.t.Errorf("%s permits are free, want 5", n)
		}
	})
}

// first waits until one of these waiters has got its lock, and takes its answer.
func first(waiters ...*actor) *actor {
	var got *actor
	if !eventually(func() bool {
		for _, a := range waiters {
			if a.Answered() {
				got = a
			}
		}
		return got != nil
	}) {
		waiters[0].T.Helper()
		waiters[0].T.Fatalf("none of %s gets the lock", waiters)
	}
	got.OK("lock")
	return got
}

// Both sides count a latch down, and wait for it.
func TestLatch(t *testing.T) {
	each(t, []place{server, cluster, unsharded}, func(w *world) {
		for _, d := range w.directions() {
			title := named(d)
			name := w.name(title)
			first, other := w.actor(d.first, title+"-first", long), w.actor(d.other, title+"-other", long)
			waiter1, waiter2 := w.actor(d.first, title+"-waiter1", long), w.actor(d.other, title+"-waiter2", long)
			if created := first.Do("setcount", name, 3); created != "true" {
				w.t.Fatalf("%s: trySetCount says %s", title, created)
			}
			if created := other.Do("setcount", name, 5); created != "false" {
				w.t.Errorf("%s: trySetCount of a latch that exists says %s", title, created)
			}
			waiter1.Send("await", name, limit.Milliseconds())
			waiter2.Send("await", name, limit.Milliseconds())
			w.waiting("latch", name, 2)
			first.Do("down", name)
			other.Do("down", name)
			remote.MustWait("the count is 1", waiter1, waiter2)
			if n := w.actor(w.java(), title+"-count", long).Do("count", name); n != "1" {
				w.t.Errorf("%s: the count is %s, want 1", title, n)
			}
			first.Must("busy", "await", name, 100)
			begin := time.Now()
			other.Do("down", name)
			waiter1.OK("await")
			waiter2.OK("await")
			if took := time.Since(begin); took > long/2 {
				w.t.Errorf("%s: the waiters of the latch were woken after %v", title, took)
			}
			first.Do("await", name, 1000)
		}
	})
}

// A multi-lock of one side excludes single locks, and multi-locks, of the other side.
func TestMulti(t *testing.T) {
	each(t, []place{server, cluster}, func(w *world) {
		for _, d := range w.directions() {
			title := named(d)
			a, b, c := w.name(title+"-a"), w.name(title+"-b"), w.name(title+"-c")
			first, other := w.actor(d.first, title+"-first", long), w.actor(d.other, title+"-other", long)
			first.Do("lock", "multi", a+","+b+","+c)
			for _, name := range []string{a, b, c} {
				mustBeBusy(other, "mutex", name)
			}
			mustBeBusy(other, "multi", b+","+c)
			other.Send("lock", "mutex", b)
			w.waiting("mutex", b, 1)
			remote.MustWait("the other side has all three", other)
			first.Do("unlock")
			other.OK("lock")
			mustBeBusy(first, "multi", a+","+b)
			first.Do("lock", "mutex", a) // the attempt has left nothing
			first.Do("unlock")
			other.Do("unlock")
			other.Do("lock", "multi", a+","+b+","+c)
			other.Do("unlock")
		}
	})
}

// Each grant has a larger token than all before it. Both sides see the one that counts.
func TestTokens(t *testing.T) {
	each(t, []place{server, cluster}, func(w *world) {
		name := w.name("fenced")
		java, golang := w.actor(w.java(), "java", long), w.actor(w.ours(), "ours", long)
		last := 0
		for i := range 10 {
			a := []*actor{java, golang}[i%2]
			token := 0
			if _, err := fmt.Sscan(a.Do("lock", "fenced", name), &token); err != nil {
				w.t.Fatal(err)
			}
			if token <= last {
				w.t.Errorf("%s got the token %d after %d", a, token, last)
			}
			last = token
			if now := java.Do("token", name); now != fmt.Sprint(token) {
				w.t.Errorf("getToken says %s, %s has %d", now, a, token)
			}
			a.Do("unlock")
		}
	})
}
