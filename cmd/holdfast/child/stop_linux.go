package child

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

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

// A pendingStop is a SIGTSTP that is pending in one thread, where it is blocked. The kernel drops it when
// somebody sends a SIGCONT. So no SIGCONT that comes after pend is too early for the stop that it shall cancel.
//
// The SIGTSTP itself drops a SIGCONT that came before it, and that no thread has received. When pend blocks
// SIGTSTP, the kernel looks for signals, and this thread receives a SIGCONT that is pending. So pend drops one
// that comes between its two calls, within a microsecond. No call of the kernel does both, and nothing shows
// afterwards what was dropped.
type pendingStop struct{ mask unix.Sigset_t }

// pend begins with a stop. The caller must call act or drop at last, and all methods in the same goroutine.
func pend() stopper {
	p := &pendingStop{}
	p.begin()
	return p
}

func (p *pendingStop) begin() {
	runtime.LockOSThread()
	set, pid, thread := stopSet(), os.Getpid(), unix.Gettid()
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, &p.mask)
	_ = unix.Tgkill(pid, thread, syscall.SIGTSTP)
}

// stopSet is the set of SIGTSTP.
func stopSet() (set unix.Sigset_t) {
	const bits = 8 * unsafe.Sizeof(set.Val[0])
	set.Val[(syscall.SIGTSTP-1)/syscall.Signal(bits)] = 1 << ((syscall.SIGTSTP - 1) % syscall.Signal(bits))
	return set
}

const maskSize = 8 // of the kernel's sets of signals, in bytes

// drop cancels the stop.
func (p *pendingStop) drop() {
	set, now := stopSet(), unix.Timespec{}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0,
		uintptr(unsafe.Pointer(&now)), maskSize, 0, 0) // it takes the signal
	p.end()
}

func (p *pendingStop) end() {
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &p.mask, nil)
	runtime.UnlockOSThread()
}

// again begins anew if a SIGCONT was sent meanwhile. If that is pending, this thread receives it first.
func (p *pendingStop) again() {
	if !stillPending() {
		p.end()
		p.begin()
	}
}

// act stops this process, or its group as a terminal would, unless a SIGCONT was sent meanwhile. It
// returns when this process is continued. It returns at once if nobody could do that: in an orphaned
// group the kernel ignores SIGTSTP. Package signal never restores the default action once it has caught
// SIGTSTP, so act sets it. undo catches the signal again; it is nil if a SIGCONT was sent meanwhile.
func (p *pendingStop) act(group bool) (undo func()) {
	defer p.end()
	if !stillPending() {
		return nil
	}
	set, old := stopSet(), new(guard.Action)
	guard.SetAction(syscall.SIGTSTP, new(guard.Action), old)
	if group {
		_ = syscall.Kill(0, syscall.SIGTSTP) // this process gets it, too, and any of its threads, a moment later
	}
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil) // it acts here
	return func() { guard.SetAction(syscall.SIGTSTP, old, nil) }
}

// stillPending reports whether SIGTSTP is pending.
func stillPending() bool {
	var set unix.Sigset_t
	_, _, _ = syscall.RawSyscall(syscall.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&set)), maskSize, 0)
	stops := stopSet()
	for i := range set.Val {
		if set.Val[i]&stops.Val[i] != 0 {
			return true
		}
	}
	return false
}

// ignored reports whether this process ignores a signal. Package signal does not know it of SIGTSTP.
func ignored(s syscall.Signal) bool {
	now := new(guard.Action)
	guard.SetAction(s, nil, now)
	return now.Ignores()
}
