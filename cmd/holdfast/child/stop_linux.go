package child

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// keepTTOU records the action of SIGTTOU before a command runs, and restore sets it again. So the next
// command inherits the same action as the first. Package signal cannot do that.
func keepTTOU() (restore func()) {
	ttou := new(guard.Action)
	guard.SetAction(syscall.SIGTTOU, nil, ttou)
	return func() { guard.SetAction(syscall.SIGTTOU, ttou, nil) }
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

// stopHere stops this process, and returns when it is continued, or at once as stopSelf does. A signal
// for this thread acts before the call that sends it returns.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := new(guard.Action)
	guard.SetAction(syscall.SIGTSTP, new(guard.Action), old)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTSTP)
	guard.SetAction(syscall.SIGTSTP, old, nil)
}

// ignored reports whether this process ignores a signal. Package signal does not know it of SIGTSTP.
func ignored(s syscall.Signal) bool {
	now := new(guard.Action)
	guard.SetAction(s, nil, now)
	return now.Ignores()
}
