//go:build unix

package sqltest

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/hook"
)

// Processes wakes, stops and kills a process that waits.
func (x *Sockets) Processes(t *testing.T, dsn string) {
	t.Run("woken", func(t *testing.T) {
		a := x.join(t, nil, "")
		held := a.take()
		h, server := x.start(t, a, dsn, time.Minute)
		count := x.Wakes(t, server)
		a.release(held)
		if token := h.locked(t); token <= held.Token {
			t.Errorf("token %d after %d", token, held.Token)
		}
		if n := count(); n > 0 {
			t.Errorf("the server has carried %d wake-ups", n)
		}
		_ = h.in.Close()
		if err := h.cmd.Wait(); err != nil {
			t.Error(err)
		}
		if hook.SQLTell(a.b, server, "n", "x-1", 1) {
			t.Error("a message was sent to a process that has ended")
		}
	})
	// Its socket takes the message. Its lease ends as if the server had told it, and the next one gets
	// the lock; it does not believe the old message when it continues.
	t.Run("stopped", func(t *testing.T) {
		a := x.join(t, nil, "")
		held := a.take()
		h, server := x.start(t, a, dsn, 5*time.Second)
		c := x.client(t)
		count := x.Wakes(t, server)
		got := lockBehind(t, a, c)
		if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // its place lasts for seconds now
			t.Fatal(err)
		}
		a.release(held)
		next := <-got
		if n := count(); n > 0 {
			t.Errorf("the server has carried %d wake-ups", n)
		}
		if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := next.Release(); err != nil {
			t.Error(err)
		}
		if token := h.locked(t); token <= next.Token() {
			t.Errorf("the helper has locked with %d; another has had %d meanwhile", token, next.Token())
		}
	})
	// The kernel refuses messages to it.
	t.Run("killed", func(t *testing.T) {
		a := x.join(t, nil, "")
		held := a.take()
		h, server := x.start(t, a, dsn, time.Minute)
		count := x.Wakes(t, server)
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		a.release(held)
		until(t, "the server has carried a wake-up", func() bool { return count() > 0 })
		if slices.Contains(SocketOf(x.join(t, nil, "").b).Others(), server) {
			t.Error("the socket's file is left")
		}
	})
}
