//go:build unix && !linux

package child

import "syscall"

// keepActions does nothing: here what package signal has caught or ignored once stays so.
func keepActions() (restore func()) { return func() {} }

// stopSelf stops the group of this process as a terminal would, and returns at once if
// nobody could continue it: in an orphaned group the kernel ignores the signal. Once package
// signal has caught SIGTSTP it never gives the default action back; SIGTTIN has it still.
func stopSelf() (undo func()) {
	_ = syscall.Kill(0, syscall.SIGTTIN)
	return func() {}
}
