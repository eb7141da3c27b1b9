package child

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
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
