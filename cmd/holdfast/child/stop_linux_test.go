package child

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestContinuedBeforeTheStop: a SIGCONT cancels a stop that has begun, and has not acted.
func TestContinuedBeforeTheStop(t *testing.T) {
	stop := pend()
	defer stop.drop()
	if !stillPending() {
		t.Fatal("the stop is not pending")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if stillPending() {
		t.Error("the stop is still pending")
	}
}

// TestStopThatWasCancelledBeforeItActs: it does not act, and says so. The caller must not wait for its end.
func TestStopThatWasCancelledBeforeItActs(t *testing.T) {
	stop := pend()
	if err := syscall.Kill(os.Getpid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if undo := stop.act(false); undo != nil {
		undo()
		t.Error("a cancelled stop acts")
	}
}

// TestStopThatIsDropped: it is not pending any more, and has not been delivered.
func TestStopThatIsDropped(t *testing.T) {
	runtime.LockOSThread() // a pending stop belongs to a thread
	defer runtime.UnlockOSThread()
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTSTP, syscall.SIGWINCH)
	defer signal.Stop(received)
	pend().drop()
	if stillPending() {
		t.Error("the stop is still pending")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil { // it is received after the stop
		t.Fatal(err)
	}
	for s := range received {
		if s == syscall.SIGWINCH {
			break
		}
		t.Error("the stop was delivered")
	}
}

// TestStopThatWasCancelled: a SIGCONT cancels the stop that came with it, also if it is received first.
// It cancels none that comes later.
func TestStopThatWasCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, halted := stops()
		s.Queued()
		s.Got(syscall.SIGCONT)
		s.Got(syscall.SIGTSTP)
		time.Sleep(stopAtMost)
		if len(halted) != 0 {
			t.Error("stopped although it was continued")
		}
		s.Got(syscall.SIGTSTP)
		<-halted
		s.Got(syscall.SIGCONT) // it ends that stop
		s.Got(syscall.SIGTSTP)
		time.Sleep(stopAtMost)
		if len(halted) != 1 {
			t.Error("not stopped again")
		}
		s.signals <- syscall.SIGCONT
		s.signals <- syscall.SIGTSTP
		s.Granted()
		if len(s.signals) != 0 {
			t.Error("the command gets a stop that was cancelled")
		}
	})
}

// TestContinuedBeforeItIsReceived: a SIGCONT has been sent, and no thread has received it when the command
// stops. The stop of this process does not drop it.
func TestContinuedBeforeItIsReceived(t *testing.T) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGCONT)
	defer signal.Stop(received)
	j, _ := runs(t)
	j.pend = pend
	defer j.over()
	j.prepare()
	var blocked unix.Sigset_t
	blocked.Val[0] = 1 << (syscall.SIGCONT - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	j.suspend()
	select {
	case <-received:
	case <-time.After(10 * time.Second):
		t.Error("SIGCONT is never received")
	}
}

// TestStopThatIsReady: Run has a stop pending before anybody asks for one, and again after a SIGCONT. None is
// left when it returns.
func TestStopThatIsReady(t *testing.T) {
	c := command(t, "sleep", "1000")
	go func() {
		defer func() { c.Signals <- syscall.SIGTERM }()
		for _, when := range []string{"at first", "after a SIGCONT"} {
			for start := time.Now(); !anyPends(syscall.SIGTSTP); time.Sleep(time.Millisecond) {
				if time.Since(start) > 10*time.Second {
					t.Error("no stop is pending " + when)
					return
				}
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGCONT) // it drops the stop
		}
	}()
	if _, err := Run(c); err != nil || anyPends(syscall.SIGTSTP) {
		t.Errorf("%v, or a stop is left", err)
	}
}

// TestCancelledOnABusyMachine: a SIGCONT cancels the stop that came with it, however long it takes to handle
// the SIGCONT.
func TestCancelledOnABusyMachine(t *testing.T) {
	j, _ := runs(t)
	var last time.Time
	j.Left = func() time.Duration { last = time.Now(); return time.Hour }
	j.pass(syscall.SIGCONT)
	if last.IsZero() || j.order.continued.Before(last) {
		t.Error("the time begins before the SIGCONT is handled")
	}
}

// anyPends reports whether a signal is pending in a thread of this process.
func anyPends(s syscall.Signal) bool {
	files, _ := filepath.Glob("/proc/self/task/*/status")
	for _, name := range files {
		text, _ := os.ReadFile(name) // the thread may have ended
		_, set, _ := strings.Cut(string(text), "SigPnd:")
		set, _, _ = strings.Cut(set, "\n")
		if n, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64); err == nil && n>>(s-1)&1 != 0 {
			return true
		}
	}
	return false
}
