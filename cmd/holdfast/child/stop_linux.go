package child

import (
	"syscall"
	"unsafe"
)

// action is a struct sigaction of the kernel, whatever its layout: its zero is SIG_DFL.
type action [16]uint64

// stopSelf stops the group of this process as a terminal would, and returns at once if
// nobody could continue it: in an orphaned group the kernel ignores SIGTSTP. Once package
// signal has caught SIGTSTP it never gives the default action back, so it is set here.
// undo catches the signal again.
func stopSelf() (undo func()) {
	old := new(action)
	sigaction(new(action), old)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	return func() { sigaction(old, nil) }
}

func sigaction(next, old *action) {
	const maskSize = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGTSTP),
		uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(old)), maskSize, 0, 0)
}
