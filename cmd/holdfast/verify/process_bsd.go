//go:build unix && !linux

package verify

import (
	"os/exec"
	"syscall"
)

// bound runs f, which starts cmd and waits for it. A worker ends when its standard input does; one that is stopped
// is woken by the kernel when its parent has ended, since its group is then an orphan.
func bound(cmd *exec.Cmd, f func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	go f()
}

// frozen cannot be told here.
func frozen(int) (is, known bool) { return false, false }
