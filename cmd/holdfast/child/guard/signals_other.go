//go:build unix && !linux

package guard

import "syscall"

// forkExec is syscall.ForkExec. These systems have no way to block signals in the child only, so a key
// at the wrong moment may stop it between fork and exec. This process then waits until it goes on.
func forkExec(exe string, args func(mask string) []string, attr *syscall.ProcAttr) (pid int, err error) {
	return syscall.ForkExec(exe, args(""), attr)
}

func takeSignals(string) {}
