package child

import "syscall"

// ownGroup makes a process the leader of a group, and has Linux kill it with this process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
