package redisson

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// A lease without a watchdog, which only Redisson has, ends without a message. The waiter of the
// other side comes in then, and not before.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	each(t, []place{server, cluster}, func(w *world) {
		w.t.Parallel()
		var waiters []*actor
		over := map[string]time.Time{}
		for _, kind := range []string{"mutex", "fair", "fenced", "read", "write"} {
			name := w.name(kind)
			holder, waiter := w.actor(w.java(), kind+"-holder", long), w.actor(w.ours(), kind, long)
			// Not lock: Redisson's lockAndGetToken(lease, unit) ignores the lease.
			holder.Do("try", kind, name, limit.Milliseconds(), lease.Milliseconds())
			over[kind] = time.Now().Add(w.left(name))
			wanted := kind
			if kind == "read" {
				wanted = "write"
			}
			waiter.Send("lock", wanted, name)
			waiters = append(waiters, waiter)
		}
		for _, a := range waiters {
			a.OK("lock")
			if early := time.Until(over[a.Name]); early > 100*time.Millisecond {
				w.t.Errorf("%s: the lock passed on %v before the end of the lease", a.Name, early)
			}
			if late := time.Since(over[a.Name]); late > long/2 {
				w.t.Errorf("%s: the lock passed on %v after the end of the lease", a.Name, late)
			}
			a.Do("unlock")
		}
	})
}

// A thread of Redisson that has taken a lock twice gives it back twice.
func TestReentrant(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		for _, kind := range []string{"mutex", "fair", "fenced", "read", "write"} {
			name := w.name(kind)
			holder, waiter := w.actor(w.java(), kind+"-holder", long), w.actor(w.ours(), kind+"-waiter", long)
			wanted := kind
			if kind == "read" {
				wanted = "write"
			}
			holder.Do("lock", kind, name)
			holder.Do("lock", kind, name)
			waiter.Send("lock", wanted, name)
			w.waiting(wanted, name, 1)
			holder.Do("unlock")
			remote.MustWait("the holder has given it back once of twice", waiter)
			holder.Do("unlock")
			waiter.OK("lock")
			waiter.Do("unlock")
		}
	})
}

// The permits of a process that dies are free when its leases are over. An RSemaphore of Redisson has
// no leases: only those of holdfast come back, when somebody of holdfast uses the semaphore.
func TestPermitHolderDies(t *testing.T) {
	t.Parallel()
	each(t, []place{server}, func(w *world) {
		doomed := w.ours().start(w.t)
		kinds := []string{"permit"}
		if !control {
			kinds = append(kinds, "semaphore")
		}
		var waiters []*actor
		for _, kind := range kinds {
			name := w.name(kind)
			holder, waiter := w.actorAt(doomed, kind, short), w.actor(w.java(), kind, long)
			waiter.Do("setpermits", kind, name, 2)
			if kind == "permit" && control {
				holder.Do("lock", kind, name, short.Milliseconds())
			} else {
				holder.Do("lock", kind, name, 0, 2)
			}
			if !control {
				mustBeBusy(waiter, kind, name)
			}
			waiters = append(waiters, waiter)
		}
		doomed.Kill()
		for _, a := range waiters {
			if a.Name == "semaphore" {
				w.actor(w.ours(), "user", long).Must("ok", "lock", "semaphore", w.name("semaphore"))
			}
			a.Do("lock", a.Name, w.name(a.Name))
			a.Do("unlock")
		}
	})
}

// Names are the same on both sides, whatever is in them. In a Cluster some are of no use to Redisson:
// its keys of the name are in several slots. Holdfast refuses those.
func TestNames(t *testing.T) {
	each(t, []place{server, cluster}, func(w *world) {
		usable := []string{"plain", "a:b:c", "{tag}rest", "pre{tag}", "a{b}{c}", "{{a}}", "äöü-锁"}
		refused := []string{"a}b", "a{b", "a{}b"}
		if w.place.name == "server" {
			usable, refused = slices.Concat(usable, refused), nil
		}
		for i, text := range usable {
			for _, kind := range []string{"mutex", "fenced", "write", "permit"} {
				w.sameName(fmt.Sprint(text, "#", w.number, kind), kind, fmt.Sprint(i, kind))
			}
		}
		for i, text := range refused {
			if ours := w.actor(w.ours(), fmt.Sprint("refused", i), long); !control {
				ours.Must("error", "try", "mutex", text, 0)
				ours.Must("error", "try", "permit", text, 0)
				ours.Must("error", "setcount", text, 1)
			}
		}
		if w.place.name != "server" && !control {
			w.actor(w.ours(), "latch", long).Must("error", "setcount", "{tag}latch", 1)
		}
	})
}

// sameName lets each side wait for the other one.
func (w *world) sameName(name, kind, title string) {
	w.t.Helper()
	java, ours := w.actor(w.java(), "java"+title, long), w.actor(w.ours(), "ours"+title, long)
	if kind == "permit" {
		java.Do("setpermits", kind, name, 1)
	}
	holder, waiter := java, ours
	holder.Do("lock", kind, name)
	for range 2 {
		mustBeBusy(waiter, kind, name)
		waiter.Send("lock", kind, name)
		begin := time.Now()
		holder.Do("unlock")
		waiter.OK("lock")
		if took := time.Since(begin); took > long/2 {
			w.t.Errorf("%s %s: %s came in after %v", kind, name, waiter, took)
		}
		holder, waiter = waiter, holder
	}
	holder.Do("unlock")
}

// A name has one kind.
func TestKinds(t *testing.T) {
	if control {
		t.Skip("Redisson does not check kinds")
	}
	each(t, []place{server}, func(w *world) {
		java, ours := w.actor(w.java(), "java", long), w.actor(w.ours(), "ours", long)
		for _, held := range []string{"mutex", "write", "read", "permit"} {
			name := w.name(held)
			if held == "permit" {
				java.Do("setpermits", held, name, 1)
			}
			java.Do("lock", held, name)
			for _, wanted := range []string{"mutex", "write", "read", "permit"} {
				rw := held == "write" || held == "read"
				if held == wanted || rw && (wanted == "write" || wanted == "read") {
					continue
				}
				ours.Must("error", "try", wanted, name, 0)
			}
			java.Do("unlock")
		}
	})
}

// A latch that is removed wakes the waiters of holdfast. Redisson's removal does not wake its own.
func TestLatchRemoved(t *testing.T) {
	if control {
		t.Skip("Redisson's waiters are not woken")
	}
	each(t, []place{server, cluster}, func(w *world) {
		for _, d := range w.directions() {
			name := w.name(named(d))
			remover, waiter := w.actor(d.first, named(d)+"-remover", long), w.actor(d.other, named(d)+"-waiter", long)
			remover.Do("setcount", name, 1)
			waiter.Send("await", name, limit.Milliseconds())
			w.waiting("latch", name, 1)
			remover.Do("drop", name)
			begin := time.Now()
			waiter.OK("await")
			w.t.Logf("%s: woken after %v", d.name, time.Since(begin).Round(time.Millisecond))
		}
	})
}
