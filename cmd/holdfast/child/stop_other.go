//go:build unix && !linux

package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// keepTTOU does nothing: here a signal that package signal has ignored stays so.
func keepTTOU() (restore func()) { return func() {} }

// A laterStop is a stop that act sends.
type laterStop struct{}

// pend begins with a stop.
func pend() stopper { return laterStop{} }

// drop cancels the stop.
func (laterStop) drop() {}

// again does nothing: no SIGCONT cancels the stop.
func (laterStop) again() {}

// act stops this process, or its group as a terminal would. It returns soon if nobody could continue
// it: in an orphaned group the kernel ignores the signal. Package signal never restores the default
// action of SIGTSTP once it has caught that; SIGTTIN still has its default action.
func (laterStop) act(group bool) (undo func()) {
	whom := os.Getpid()
	if group {
		whom = 0
	}
	_ = syscall.Kill(whom, syscall.SIGTTIN)
	time.Sleep(10 * time.Millisecond) // the signal may take a moment to act
	return func() {}
}

// ignored reports whether this process ignores a signal.
func ignored(s syscall.Signal) bool { return signal.Ignored(s) }
