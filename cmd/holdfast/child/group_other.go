//go:build unix && !linux

package child

import "syscall"

// ownGroup starts a process as the leader of a group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// alive reports whether a group whose leader has been waited for still has members.
func alive(group int) bool {
	for { // those who were left to this process
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
			break
		}
	}
	return syscall.Kill(-group, 0) != syscall.ESRCH
}
