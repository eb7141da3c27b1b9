//go:build unix && !linux

package verify

import (
	"os/exec"
	"syscall"
)

// tiedToParent runs f, which starts cmd and waits for it. A worker ends at the end of its standard
// input. If its parent ends while it is stopped, the kernel continues it, because its group is then
// an orphan.
func tiedToParent(cmd *exec.Cmd, f func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	go f()
}

// frozen cannot tell on these systems.
func frozen(int) (is, known bool) { return false, false }
