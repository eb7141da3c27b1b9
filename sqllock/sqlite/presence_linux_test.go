package sqlite

import (
	"syscall"
	"testing"
	"time"
)

// TestSQLitePresence: a child that was given the files of Presence keeps the locks of a killed process until it ends.
func TestSQLitePresence(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	s := openTestSession(t, b, time.Hour)
	granted(t, s, exclusive("a"))
	wake := queued(t, openTestSession(t, openTest(t, path, nil), time.Hour), exclusive("a"))
	files := b.Presence()
	if len(files) != 1 {
		t.Fatalf("%d files for one session", len(files))
	}
	child, err := syscall.Dup(int(files[0].Fd()))
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	select {
	case <-wake:
		t.Error("the lock was granted while the child has the file")
	case <-time.After(5 * probeEvery): // no event shows that nothing is granted
	}
	if err := syscall.Close(child); err != nil {
		t.Fatal(err)
	}
	woken(t, wake)
}
