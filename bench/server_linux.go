package main

import (
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill cmd's process when this one dies.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// syncData returns when the data written to f is on the disk; the size of f must be unchanged.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// runAs has cmd run as another user. It is called after dieWithParent.
func runAs(cmd *exec.Cmd, uid, gid uint32) {
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
}
