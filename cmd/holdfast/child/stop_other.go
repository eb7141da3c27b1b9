//go:build unix && !linux

package child

import "syscall"

// stopSelf stops the group of this process as a terminal would, and returns at once if
// nobody could continue it: in an orphaned group the kernel ignores the signal. Once package
// signal has caught SIGTSTP it never gives the default action back; SIGTTIN has it still.
func stopSelf() (undo func()) {
	_ = syscall.Kill(0, syscall.SIGTTIN)
	return func() {}
}
