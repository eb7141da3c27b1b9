package guard

import (
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Action is a struct sigaction of the kernel, with room for any layout. Zero is SIG_DFL.
type Action [16]uint64

// SetAction sets the action of a signal to next, and old to the action until then. Either may be nil.
func SetAction(s syscall.Signal, next, old *Action) {
	const maskSize = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(old)), maskSize, 0, 0)
}

// Ignores reports whether a is SIG_IGN.
func (a *Action) Ignores() bool {
	const ignore = 1
	return *(*uintptr)(unsafe.Pointer(a)) == ignore
}

// forkExec is syscall.ForkExec for a child that begins with all signals blocked. args gets the mask that
// the child would have had, for takeSignals.
//
// At first the child is in the group of this process, and a key may send a signal to that. Between fork
// and exec the child would have its default action: a stop, and this process waits for the exec for ever;
// or the end of a guard that nobody knows yet.
func forkExec(exe string, args func(mask string) []string, attr *syscall.ProcAttr) (pid int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, mask unix.Sigset_t
	for i := range all.Val {
		all.Val[i]--
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &mask); err != nil {
		return 0, err
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil)
	words := make([]string, len(mask.Val))
	for i, w := range mask.Val {
		words[i] = strconv.FormatUint(uint64(w), 16)
	}
	return syscall.ForkExec(exe, args(strings.Join(words, ",")), attr)
}

// takeSignals sets the mask of this thread. Signals that have come meanwhile act on this process now, by
// their default actions: package runtime would have others.
func takeSignals(text string) {
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	} {
		if !signal.Ignored(s) {
			SetAction(s, new(Action), nil)
		}
	}
	var mask unix.Sigset_t
	for i, word := range strings.Split(text, ",") {
		if n, err := strconv.ParseUint(word, 16, 64); err == nil && i < len(mask.Val) {
			setWord(&mask.Val[i], n)
		}
	}
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil)
}

// setWord sets a word of a mask, whose size depends on the machine.
func setWord[T uint32 | uint64](word *T, n uint64) { *word = T(n) }
