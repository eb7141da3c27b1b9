package lab

import (
	"os/exec"
	"runtime"
	"syscall"
)

// bound runs f, which starts cmd and waits for it, so that cmd dies with this process. The
// kernel watches the thread that started it, so f keeps its thread to itself.
func bound(cmd *exec.Cmd, f func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // ^C is for the lab, which cleans up
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}()
}
