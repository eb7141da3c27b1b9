package child

import (
	"os"
	"runtime"
	"syscall"
	"testing"
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

// TestStopThatIsDropped: it is not pending any more.
func TestStopThatIsDropped(t *testing.T) {
	runtime.LockOSThread() // a pending stop belongs to a thread
	defer runtime.UnlockOSThread()
	pend().drop()
	if stillPending() {
		t.Error("the stop is still pending")
	}
}
