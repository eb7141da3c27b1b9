package guard

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// blocked returns the mask of blocked signals that a status file of /proc shows.
func blocked(t *testing.T, status string) (mask uint64) {
	t.Helper()
	text, err := os.ReadFile(status)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "SigBlk:\t")
	word, _, _ := strings.Cut(after, "\n")
	if mask, err = strconv.ParseUint(word, 16, 64); err != nil {
		t.Fatal(err)
	}
	return mask
}

// TestStopsAreBlockedSinceTheFork: a guard begins with all stops blocked, so none acts on it between
// fork and exec. The command gets the mask of the thread that launched it.
func TestStopsAreBlockedSinceTheFork(t *testing.T) {
	runtime.LockOSThread() // masks belong to threads
	defer runtime.UnlockOSThread()
	g := started(t)
	defer g.Dismiss()
	const stop = 1 << (syscall.SIGTSTP - 1)
	if mask := blocked(t, "/proc/"+strconv.Itoa(g.pid)+"/status"); mask&stop == 0 {
		t.Errorf("the guard blocks %x", mask)
	}
	own, file := blocked(t, "/proc/thread-self/status"), filepath.Join(t.TempDir(), "status")
	if own&stop != 0 {
		t.Fatalf("this test blocks %x", own)
	}
	wait(t, launch(t, g, "exec cat /proc/self/status >"+file))
	if mask := blocked(t, file); mask != own {
		t.Errorf("the command blocks %x; want %x", mask, own)
	}
}
