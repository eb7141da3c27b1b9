//go:build unix

package child

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// TestStoppedForLong: this process was stopped for longer than resume takes. SIGCONT continues the
// command, once. If no SIGCONT comes, because nobody could stop this process, resume does that.
func TestStoppedForLong(t *testing.T) {
	sleep := exec.Command("sleep", "1000")
	sleep.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	wait := func(what string, is func(syscall.WaitStatus) bool) (ws syscall.WaitStatus) {
		t.Helper()
		_, err := syscall.Wait4(sleep.Process.Pid, &ws, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if err != nil || !is(ws) {
			t.Fatalf("%s: %v, %v", what, ws, err)
		}
		return ws
	}
	stopped := func(what string) {
		t.Helper()
		var ws syscall.WaitStatus
		if pid, err := syscall.Wait4(sleep.Process.Pid, &ws, syscall.WCONTINUED|syscall.WNOHANG, nil); pid != 0 || err != nil {
			t.Fatalf("%s: %v, %v; want no change", what, ws, err)
		}
	}
	g, err := guard.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Dismiss()
	j := &job{Command: command(t, "sleep"), pid: sleep.Process.Pid, deadline: deadline{guard: g}}
	j.begin()
	suspended := func() { // but for the stop of this process
		t.Helper()
		_ = syscall.Kill(sleep.Process.Pid, syscall.SIGTSTP)
		j.changed(wait("a key", syscall.WaitStatus.Stopped))
		j.undo, j.timely = func() {}, false
		j.setResume()
	}
	suspended()
	j.due -= time.Hour
	j.notStopped()
	stopped("resume is late")
	if j.resume == nil {
		t.Fatal("resume is not set")
	}
	j.pass(syscall.SIGCONT)
	j.changed(wait("SIGCONT", syscall.WaitStatus.Continued))
	if j.resume != nil {
		t.Error("resume is set after SIGCONT")
	}
	suspended()
	j.due += time.Hour
	j.notStopped()
	stopped("resume is in time once")
	j.due -= time.Hour
	j.notStopped()
	stopped("resume is late the second time")
	for range 2 {
		stopped("before resume is in time twice")
		j.due += time.Hour
		j.notStopped()
	}
	j.changed(wait("resume is in time twice", syscall.WaitStatus.Continued))
}
