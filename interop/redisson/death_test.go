package redisson

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// Both sides hold on to their locks for three times their lease. After a holder has died the other
// side gets in when the lease that the store has recorded is over, and not before.
func TestHolderDies(t *testing.T) {
	t.Parallel()
	each(t, []place{server}, func(w *world) {
		w.t.Parallel()
		for _, d := range w.directions() {
			w.t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				newWorld(t, w.release, w.place).holderDies(d)
			})
		}
	})
}

func (w *world) holderDies(d direction) {
	w.t.Helper()
	kinds := []string{"mutex", "fair", "fenced", "read", "write"}
	if w.release == "3.24.1" {
		// Before 3.32 a waiter of a fair lock sleeps for ever, if the holder dies after its first lease.
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "fair" })
	}
	dead := d.first.start(w.t)
	waiting := map[string]*actor{}
	for _, kind := range kinds {
		w.actorAt(dead, kind, short).Do("lock", kind, w.name(kind))
		wanted := kind
		if kind == "read" {
			wanted = "write"
		}
		waiting[kind] = w.actor(d.other, kind, long)
		waiting[kind].Send("lock", wanted, w.name(kind))
		w.waiting(wanted, w.name(kind), 1)
	}
	for end := time.Now().Add(3 * short); time.Now().Before(end); {
		for kind, a := range waiting {
			remote.MustWait(fmt.Sprint("the holder is alive for ", kind), a)
			if w.left(w.name(kind)) == 0 {
				w.t.Fatalf("%s: the lock of a live holder has expired", kind)
			}
		}
	}
	dead.Kill()
	time.Sleep(100 * time.Millisecond) // the server reads what the process has sent
	over := map[string]time.Time{}
	for _, kind := range kinds {
		asked := time.Now() // before the lease is read: a pause in between must not make its end later
		left := w.left(w.name(kind))
		if left > short {
			w.t.Errorf("%s: the lease is over in %v, but the TTL is %v", kind, left, short)
		}
		over[kind] = asked.Add(left)
	}
	for _, kind := range kinds {
		a := waiting[kind]
		a.OK("lock")
		early, late := time.Until(over[kind]), time.Since(over[kind])
		if early > 100*time.Millisecond {
			w.t.Errorf("%s: %s got the lock %v before the lease of the dead holder was over", kind, a, early)
		}
		if late > long/2 {
			w.t.Errorf("%s: %s got the lock %v after the lease of the dead holder was over", kind, a, late)
		}
		w.t.Logf("%s: %v after the end of the lease", kind, late.Round(time.Millisecond))
		a.Do("unlock")
	}
}

// Waiters that die delay those behind them no longer than a lease, where there is no queue.
func TestWaiterDies(t *testing.T) {
	t.Parallel()
	each(t, []place{server}, func(w *world) {
		t := w.t
		doomed := w.ours().start(t)
		var holders, waiters []*actor
		for _, kind := range []string{"mutex", "write", "semaphore", "permit"} {
			name := w.name(kind)
			holder, next := w.actor(w.java(), kind+"-holder", long), w.actor(w.java(), kind+"-next", long)
			if kind == "semaphore" || kind == "permit" {
				holder.Do("setpermits", kind, name, 1)
			}
			holder.Do("lock", kind, name)
			w.actorAt(doomed, kind, short).Send("lock", kind, name)
			w.waiting(kind, name, 1)
			next.Send("lock", kind, name)
			w.waiting(kind, name, 2)
			behind := w.actor(w.ours(), kind+"-behind", long)
			behind.Send("lock", kind, name)
			w.waiting(kind, name, 3)
			holders, waiters = append(holders, holder), append(waiters, next, behind)
		}
		doomed.Kill()
		for i, a := range holders {
			a.Do("unlock")
			first(waiters[2*i : 2*i+2]...).Do("unlock")
			first(waiters[2*i : 2*i+2]...).Do("unlock")
		}
	})
}

// A permit that has expired goes to a waiter of the other side, and its holder is told so.
func TestPermitExpires(t *testing.T) {
	t.Parallel()
	each(t, []place{server}, func(w *world) {
		name := w.name("permit")
		holder, waiter := w.actor(w.java(), "holder", long), w.actor(w.ours(), "waiter", long)
		holder.Do("setpermits", "permit", name, 1)
		const lease = 3 * time.Second
		begin := time.Now()
		holder.Do("lock", "permit", name, lease.Milliseconds())
		waiter.Send("lock", "permit", name)
		waiter.OK("lock")
		if took := time.Since(begin); took < lease-100*time.Millisecond || took > long/2 {
			w.t.Errorf("a permit of %v passed on after %v", lease, took)
		}
		holder.Must("lost", "unlock")
		waiter.Do("unlock")
		if n := holder.Do("permits", "permit", name); n != "1" {
			w.t.Errorf("%s permits are free, want 1", n)
		}
	})
}

// An unlock by a stranger is an error, and changes nothing.
func TestStranger(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		for _, kind := range []string{"mutex", "fair", "fenced", "read", "write"} {
			name := w.name(kind)
			holder, stranger := w.actor(w.ours(), kind+"-holder", long), w.actor(w.java(), kind+"-stranger", long)
			holder.Do("lock", kind, name)
			stranger.Must("lost", "strange", kind, name)
			if locked := stranger.Do("locked", kind, name); locked != "true" {
				w.t.Errorf("%s: locked is %s for the other side", kind, locked)
			}
			holder.Do("held")
			holder.Do("unlock")
			if locked := stranger.Do("locked", kind, name); locked != "false" {
				w.t.Errorf("%s: locked is %s after unlock", kind, locked)
			}
		}
	})
}

// A holder learns that the other side has freed its lock by force. Its unlock then fails, and leaves
// the next holder alone.
func TestForceUnlock(t *testing.T) {
	t.Parallel()
	each(t, []place{server}, func(w *world) {
		for _, d := range w.directions() {
			for _, kind := range []string{"mutex", "fair", "fenced", "read", "write"} {
				title := named(d) + "-" + kind
				name := w.name(title)
				holder, other := w.actor(d.first, title+"-holder", short), w.actor(d.other, title+"-other", long)
				holder.Do("lock", kind, name)
				if done := other.Do("force", kind, name); done != "true" {
					w.t.Fatalf("%s: forceUnlock says %s", title, done)
				}
				told := eventually(func() bool {
					holder.Send("held")
					return strings.HasPrefix(holder.Reply(), "lost")
				})
				if !told {
					w.t.Errorf("%s: the holder is not told of its loss", title)
				}
				next := "write"
				if kind != "read" {
					next = kind
				}
				other.Do("lock", next, name)
				holder.Must("lost", "unlock")
				if w.left(name) == 0 {
					w.t.Errorf("%s: the unlock of a former holder has freed the lock of the next one", title)
				}
				other.Do("unlock")
			}
		}
	})
}
