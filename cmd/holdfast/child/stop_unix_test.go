//go:build unix

package child

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// TestStopBeforeSIGCONT: this process was continued, and its timer was faster than SIGCONT. A key
// stops the command again before SIGCONT arrives. The command stays stopped until the next SIGCONT.
func TestStopBeforeSIGCONT(t *testing.T) {
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
	stop := func() syscall.WaitStatus {
		t.Helper()
		_ = syscall.Kill(sleep.Process.Pid, syscall.SIGTSTP)
		return wait("a key", syscall.WaitStatus.Stopped)
	}
	g, err := guard.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Dismiss()
	j := &job{Command: command(t, "sleep"), pid: sleep.Process.Pid, deadline: deadline{guard: g}}
	j.begin()
	j.changed(stop())
	j.notStopped()
	j.changed(wait("the timer", syscall.WaitStatus.Continued))
	again := stop()
	j.pass(syscall.SIGCONT)
	var ws syscall.WaitStatus
	if pid, err := syscall.Wait4(j.pid, &ws, syscall.WCONTINUED|syscall.WNOHANG, nil); pid != 0 || err != nil {
		t.Fatalf("a late SIGCONT: %v, %v; want no change", ws, err)
	}
	j.changed(again)
	j.pass(syscall.SIGCONT)
	wait("the next SIGCONT", syscall.WaitStatus.Continued)
}
