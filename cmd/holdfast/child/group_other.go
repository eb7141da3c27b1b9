//go:build unix && !linux

package child

import "syscall"

// ownGroup makes a process the leader of a group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// alive reports whether a group whose leader has been waited for still has members.
func alive(group int) bool {
	for { // children that this process inherited
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
			break
		}
	}
	return syscall.Kill(-group, 0) != syscall.ESRCH
}
