package sqlite

import (
	"os"
	"testing"
	"time"
)

// withPresence opens a session that holds a lock, for which another one waits. file is what a child would be given.
func withPresence(t *testing.T) (s *session, wake <-chan uint64, file *os.File) {
	t.Helper()
	path := storePath(t)
	b := openTest(t, path, nil)
	s = openTestSession(t, b, time.Hour)
	granted(t, s, exclusive("a"))
	wake = queued(t, openTestSession(t, openTest(t, path, nil), time.Hour), exclusive("a"))
	files, err := b.Presence()
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files for one session, %v", len(files), err)
	}
	return s, wake, files[0]
}

// notGranted waits for longer than a waiter needs to notice a death. No event shows that nothing is granted.
func notGranted(t *testing.T, wake <-chan uint64) {
	t.Helper()
	select {
	case <-wake:
		t.Error("the lock was granted")
	case <-time.After(5 * probeEvery):
	}
}

// TestSQLitePresence: a child that was given the files of Presence keeps the locks of a killed process until it ends.
func TestSQLitePresence(t *testing.T) {
	s, wake, file := withPresence(t)
	s.kill()
	notGranted(t, wake)
	must(t, file.Close())
	woken(t, wake)
}

// TestSQLitePresenceOfAnOldFile: the files of a session were removed, so it has others, which the child does not have.
// The locks of the killed process then last until their leases end.
func TestSQLitePresenceOfAnOldFile(t *testing.T) {
	s, wake, file := withPresence(t)
	must(t, os.Remove(s.endpoint.filePath))
	must(t, s.repair(t.Context()))
	must(t, file.Close())
	s.kill()
	notGranted(t, wake)
}
