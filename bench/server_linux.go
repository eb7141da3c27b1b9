package main

import (
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end cmd's process when this one dies without a goodbye.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// syncData returns when what was written to f, whose size is as it was, is on the disk.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// runAs has cmd run as another user. It is called after dieWithParent.
func runAs(cmd *exec.Cmd, uid, gid uint32) {
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
}
