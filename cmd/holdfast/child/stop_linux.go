package child

import (
	"syscall"
	"unsafe"
)

// action is a struct sigaction of the kernel, whatever its layout: its zero is SIG_DFL.
type action [16]uint64

// caughtTSTP is the action by which package signal catches SIGTSTP, once that is known.
var caughtTSTP *action

// keepActions remembers what SIGTSTP and SIGTTOU do before a command is run, and restore
// makes them do it again: until the next command is run, this process stops as others do,
// and that command inherits what the first did. Package signal can do neither.
func keepActions() (restore func()) {
	tstp, ttou := new(action), new(action)
	sigaction(syscall.SIGTSTP, nil, tstp)
	sigaction(syscall.SIGTTOU, nil, ttou)
	if caughtTSTP != nil {
		sigaction(syscall.SIGTSTP, caughtTSTP, nil)
	}
	return func() {
		caughtTSTP = new(action)
		sigaction(syscall.SIGTSTP, tstp, caughtTSTP)
		sigaction(syscall.SIGTTOU, ttou, nil)
	}
}

// stopSelf stops the group of this process as a terminal would, and returns at once if
// nobody could continue it: in an orphaned group the kernel ignores SIGTSTP. Once package
// signal has caught SIGTSTP it never gives the default action back, so it is set here.
// undo catches the signal again.
func stopSelf() (undo func()) {
	old := new(action)
	sigaction(syscall.SIGTSTP, new(action), old)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	return func() { sigaction(syscall.SIGTSTP, old, nil) }
}

func sigaction(s syscall.Signal, next, old *action) {
	const maskSize = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(old)), maskSize, 0, 0)
}
