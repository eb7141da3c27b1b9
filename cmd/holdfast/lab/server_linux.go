package lab

import (
	"os/exec"
	"runtime"
	"syscall"
)

// tiedToParent runs f, which starts cmd and waits for it, so that cmd dies with this process. The
// kernel ties it to the thread that started it, so f keeps its thread to itself.
func tiedToParent(cmd *exec.Cmd, f func()) {
	// ^C is for the lab, which cleans up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}()
}
