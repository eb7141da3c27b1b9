//go:build unix

package interop

import (
	"strings"
	"syscall"
	"testing"
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
	holder.do("lock", "mutex", path)
	holder.do("held")
	w.queue(java, "mutex", path)
	frozen.signal(syscall.SIGSTOP)
	java.ok("lock")
	frozen.signal(syscall.SIGCONT)
	for _, command := range []string{"held", "unlock"} {
		holder.send(command)
		if r := holder.reply(); !strings.HasPrefix(r, "lost ") {
			t.Errorf("%s of a lock that Curator has: %s", command, r)
		}
	}
	holder.mustBeBusy("mutex", path, 0)
	w.queue(holder, "mutex", path)
	mustWait("Curator has it", holder)
	java.do("unlock")
	holder.ok("lock")
	holder.do("unlock")
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
			javaHolds.do("lock", "mutex", one)
			golangHolds.do("lock", "mutex", two)
			w.queue(golangWaits, "mutex", one)
			w.queue(javaWaits, "mutex", two)
			before := w.until(one, 2)
			// A server of version 3.8.0 that is starting often accepts a connection and never
			// answers. Curator's client may then lose its session while it waits.
			java.signal(syscall.SIGSTOP)
			golang.signal(syscall.SIGSTOP)
			w.observer.Close()
			w.server.Restart(graceful)
			w.connect()
			golang.signal(syscall.SIGCONT)
			java.signal(syscall.SIGCONT)
			w.connected(5)
			mustWait("the holders still hold", golangWaits, javaWaits)
			javaHolds.do("unlock")
			golangHolds.do("unlock")
			golangWaits.ok("lock")
			javaWaits.ok("lock")
			if left := w.until(one, 1); left[0] != before[1] {
				t.Errorf("%q got the lock; %q was in the queue", left, before)
			}
			golangWaits.do("unlock")
			javaWaits.do("unlock")
		})
	}
}

func (p *process) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended; its next command reports that
}
