//go:build unix

package interop

import (
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// A holder is stopped for longer than its session, and Curator gets the lock. As soon as the holder
// continues, it knows that it has lost the lock. It can take the lock again.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	if control {
		t.Skip("Curator's locks do not report that they are lost")
	}
	w := newWorld(t)
	frozen, java := w.own(ours), w.peer(curator).actor("a", longSession)
	const path = root + "/frozen"
	holder := frozen.actor("a", shortSession)
	holder.Do("lock", "mutex", path)
	holder.Do("held")
	w.queue(java, "mutex", path)
	frozen.Signal(syscall.SIGSTOP)
	java.OK("lock")
	frozen.Signal(syscall.SIGCONT)
	for _, command := range []string{"held", "unlock"} {
		holder.Send(command)
		if r := holder.Reply(); !strings.HasPrefix(r, "lost ") {
			t.Errorf("%s of a lock that Curator has: %s", command, r)
		}
	}
	answer := ""
	busy := eventually(func() bool { // a try ends in an error until there is a new session
		holder.Send("try", "mutex", path, 0)
		answer = holder.Reply()
		return !strings.HasPrefix(answer, "error ")
	})
	if !busy || answer != "busy" {
		t.Fatalf("try of a lock that Curator has: %s", answer)
	}
	w.queue(holder, "mutex", path)
	remote.MustWait("Curator has it", holder)
	java.Do("unlock")
	holder.OK("lock")
	holder.Do("unlock")
}

// The server stops, gracefully or not, while one side holds and the other waits. Sessions survive
// that: the holder still holds, and the waiter keeps its place.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	for _, graceful := range []bool{true, false} {
		t.Run(map[bool]string{true: "graceful", false: "killed"}[graceful], func(t *testing.T) {
			t.Parallel()
			w := worldOf(t, server(t))
			java, golang := w.own(curator), w.own(ours)
			const one, two = root + "/restart/one", root + "/restart/two"
			javaHolds, golangWaits := java.actor("holds", longSession), golang.actor("waits", longSession)
			golangHolds, javaWaits := golang.actor("holds", longSession), java.actor("waits", longSession)
			javaHolds.Do("lock", "mutex", one)
			golangHolds.Do("lock", "mutex", two)
			w.queue(golangWaits, "mutex", one)
			w.queue(javaWaits, "mutex", two)
			before := w.until(one, 2)
			// A server of version 3.8.0 that is starting often accepts a connection and never
			// answers. Curator's client may then lose its session while it waits.
			java.Signal(syscall.SIGSTOP)
			golang.Signal(syscall.SIGSTOP)
			w.observer.Close()
			w.server.Restart(graceful)
			w.connect()
			golang.Signal(syscall.SIGCONT)
			java.Signal(syscall.SIGCONT)
			w.connected(5)
			remote.MustWait("the holders still hold", golangWaits, javaWaits)
			javaHolds.Do("unlock")
			golangHolds.Do("unlock")
			golangWaits.OK("lock")
			javaWaits.OK("lock")
			if left := w.until(one, 1); left[0] != before[1] {
				t.Errorf("%q got the lock; %q was in the queue", left, before)
			}
			golangWaits.Do("unlock")
			javaWaits.Do("unlock")
		})
	}
}
