//go:build unix && !linux

package keeper

import "os"

// Ancestor reports whether a process is this one, its parent, or the first process of its session.
func Ancestor(pid int) bool {
	return pid > 0 && (pid == os.Getpid() || pid == os.Getppid() || pid == sessionOf())
}
