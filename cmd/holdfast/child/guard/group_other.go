//go:build unix && !linux

package guard

import "syscall"

// Alive reports whether a group still has members.
func Alive(group int) bool {
	for { // children that this process inherited
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
			break
		}
	}
	return syscall.Kill(-group, 0) != syscall.ESRCH
}
