package child

import (
	"syscall"
	"unsafe"
)

// action is a struct sigaction of the kernel, with room for any layout. Zero is SIG_DFL.
type action [16]uint64

// caughtTSTP is the action with which package signal catches SIGTSTP; nil until it is known.
var caughtTSTP *action

// keepActions records the actions of SIGTSTP and SIGTTOU before a command runs, and restore sets
// them again. So this process stops as others do until its next command, and that command inherits
// the same actions as the first. Package signal can do neither.
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

// stopSelf stops this process, or its group as a terminal would. It returns at once if nobody could
// continue it: in an orphaned group the kernel ignores SIGTSTP. Package signal never restores the
// default action once it has caught SIGTSTP, so stopSelf sets it. undo catches the signal again.
func stopSelf(group bool) (undo func()) {
	old := new(action)
	sigaction(syscall.SIGTSTP, new(action), old)
	_ = syscall.Kill(whom(group), syscall.SIGTSTP)
	return func() { sigaction(syscall.SIGTSTP, old, nil) }
}

func sigaction(s syscall.Signal, next, old *action) {
	const maskSize = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(old)), maskSize, 0, 0)
}
