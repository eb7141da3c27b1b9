package redisson

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// A waiter in the queue of a fair lock that dies delays those behind it, but not for ever. One of
// Redisson's counts for as long as it would have waited.
func TestFairWaiterDies(t *testing.T) {
	t.Parallel()
	each(t, []place{server}, func(w *world) {
		w.t.Parallel()
		for _, d := range w.directions() {
			w.t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, w.release, w.place)
				name := w.name("fair")
				holder, behind := w.actor(d.other, "holder", short), w.actor(d.other, "behind", long)
				doomed := d.first.start(t)
				const wait = 10 * time.Second
				holder.Do("lock", "fair", name)
				w.actorAt(doomed, "doomed", short).Send("try", "fair", name, wait.Milliseconds())
				w.waiting("fair", name, 1)
				behind.Send("lock", "fair", name)
				w.waiting("fair", name, 2)
				doomed.Kill()
				begin := time.Now()
				holder.Do("unlock")
				behind.OK("lock")
				t.Logf("%s came in after %v", behind, time.Since(begin).Round(time.Millisecond))
				behind.Do("unlock")
			})
		}
	})
}

// A waiter that waits for longer than a sign of life of holdfast's waiters lasts keeps its place.
func TestFairLongWait(t *testing.T) {
	t.Parallel()
	each(t, []place{server, cluster}, func(w *world) {
		w.t.Parallel()
		name := w.name("fair")
		holder := w.actor(w.java(), "holder", long)
		line := []*actor{w.actor(w.ours(), "b", long), w.actor(w.java(), "c", long), w.actor(w.ours(), "d", long)}
		holder.Do("lock", "fair", name)
		for i, a := range line {
			a.Send("lock", "fair", name)
			w.waiting("fair", name, i+1)
		}
		time.Sleep(short)
		for i, a := range line {
			holder.Do("unlock")
			a.OK("lock")
			remote.MustWait("another one has it", line[i+1:]...)
			holder = a
		}
		holder.Do("unlock")
	})
}
