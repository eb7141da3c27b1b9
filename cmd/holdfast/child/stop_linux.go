package child

import (
	"os"
	"syscall"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// caughtTSTP is the action with which package signal catches SIGTSTP; nil until it is known.
var caughtTSTP *guard.Action

// keepActions records the actions of SIGTSTP and SIGTTOU before a command runs, and restore sets
// them again. So this process stops as others do until its next command, and that command inherits
// the same actions as the first. Package signal can do neither.
func keepActions() (restore func()) {
	tstp, ttou := new(guard.Action), new(guard.Action)
	guard.SetAction(syscall.SIGTSTP, nil, tstp)
	guard.SetAction(syscall.SIGTTOU, nil, ttou)
	if caughtTSTP != nil {
		guard.SetAction(syscall.SIGTSTP, caughtTSTP, nil)
	}
	return func() {
		caughtTSTP = new(guard.Action)
		guard.SetAction(syscall.SIGTSTP, tstp, caughtTSTP)
		guard.SetAction(syscall.SIGTTOU, ttou, nil)
	}
}

// stopSelf stops this process, or its group as a terminal would. It returns at once if nobody could
// continue it: in an orphaned group the kernel ignores SIGTSTP. Package signal never restores the
// default action once it has caught SIGTSTP, so stopSelf sets it. undo catches the signal again.
func stopSelf(group bool) (undo func()) {
	old := new(guard.Action)
	guard.SetAction(syscall.SIGTSTP, new(guard.Action), old)
	_ = syscall.Kill(whom(group), syscall.SIGTSTP)
	return func() { guard.SetAction(syscall.SIGTSTP, old, nil) }
}

// stopAsOthers stops this process, whose action of SIGTSTP is the default one.
func stopAsOthers() { _ = syscall.Kill(os.Getpid(), syscall.SIGTSTP) }

// ignored reports whether this process ignores a signal. Package signal does not know it of SIGTSTP.
func ignored(s syscall.Signal) bool {
	now := new(guard.Action)
	guard.SetAction(s, nil, now)
	return now.Ignores()
}
