package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end cmd's process when this one dies without a goodbye.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
