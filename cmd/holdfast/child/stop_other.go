//go:build unix && !linux

package child

import (
	"os/signal"
	"syscall"
	"time"
)

// keepTTOU does nothing: here a signal that package signal has ignored stays so.
func keepTTOU() (restore func()) { return func() {} }

// stopSelf stops this process, or its group as a terminal would. It returns at once if nobody could
// continue it: in an orphaned group the kernel ignores the signal. Package signal never restores
// the default action of SIGTSTP once it has caught that; SIGTTIN still has its default action.
func stopSelf(group bool) (undo func()) {
	_ = syscall.Kill(whom(group), syscall.SIGTTIN)
	return func() {}
}

// stopHere stops this process, and returns when it is continued, or soon as stopSelf does.
func stopHere() {
	stopSelf(false)
	time.Sleep(10 * time.Millisecond) // the signal may take a moment to act
}

// ignored reports whether this process ignores a signal.
func ignored(s syscall.Signal) bool { return signal.Ignored(s) }
