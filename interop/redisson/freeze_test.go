package redisson

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A holder that was frozen for longer than its lease knows that the other side has had the lock. Its
// unlock fails, and leaves the next holder alone.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	each(t, []place{server}, func(w *world) {
		w.t.Parallel()
		for _, d := range w.directions() {
			w.t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				newWorld(t, w.release, w.place).frozenHolder(d)
			})
		}
	})
}

func (w *world) frozenHolder(d direction) {
	w.t.Helper()
	kinds := []string{"mutex", "fenced", "read", "write"}
	frozen := d.first.start(w.t)
	holders, waiters := map[string]*actor{}, map[string]*actor{}
	for _, kind := range kinds {
		holders[kind], waiters[kind] = w.actorAt(frozen, kind, short), w.actor(d.other, kind, long)
		holders[kind].Do("lock", kind, w.name(kind))
		waiters[kind].Send("lock", strings.Replace(kind, "read", "write", 1), w.name(kind))
	}
	frozen.Signal(syscall.SIGSTOP)
	for _, kind := range kinds {
		waiters[kind].OK("lock")
	}
	frozen.Signal(syscall.SIGCONT)
	for _, kind := range kinds {
		told := eventually(func() bool {
			holders[kind].Send("held")
			return strings.HasPrefix(holders[kind].Reply(), "lost")
		})
		if !told {
			w.t.Errorf("%s: the holder is not told of its loss", kind)
		}
		holders[kind].Must("lost", "unlock")
		waiters[kind].Do("held")
		if w.left(w.name(kind)) == 0 {
			w.t.Errorf("%s: the unlock of a former holder has freed the lock of the next one", kind)
		}
		waiters[kind].Do("unlock")
	}
}

// A waiter of holdfast gets the lock although its subscription was cut, and the message of the
// release was lost.
func TestCutSubscription(t *testing.T) {
	if control {
		t.Skip("a waiter of Redisson then sleeps for the rest of the lease, or for ever")
	}
	t.Parallel()
	own := testenv.Redis(t)
	for _, release := range releases() {
		w := newWorld(t, release, place{"own", "default", func(testing.TB) []string { return []string{own.Addr} }})
		for _, kind := range []string{"mutex", "write", "semaphore", "permit"} {
			name := w.name(kind)
			holder, waiter := w.actor(w.java(), kind+"-holder", long), w.actor(w.ours(), kind+"-waiter", long)
			if kind == "semaphore" || kind == "permit" {
				holder.Do("setpermits", kind, name, 1)
			}
			holder.Do("lock", kind, name)
			waiter.Send("lock", kind, name)
			w.waiting(kind, name, 1)
			if err := w.observer.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			holder.Do("unlock")
			waiter.OK("lock")
			t.Logf("%s: the waiter came in after %v", kind, time.Since(begin).Round(time.Millisecond))
			waiter.Do("unlock")
		}
	}
}
