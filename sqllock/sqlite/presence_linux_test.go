package sqlite

import (
	"os"
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
	files, err := b.Presence()
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files for one session, %v", len(files), err)
	}
	s.kill()
	select {
	case <-wake:
		t.Error("the lock was granted while the child has the file")
	case <-time.After(5 * probeEvery): // no event shows that nothing is granted
	}
	must(t, files[0].Close())
	woken(t, wake)
}

// TestSQLitePresenceOfAnOldFile: the files of a session were removed, so it has others, which the child does not have.
// The locks of the killed process then last until their leases end.
func TestSQLitePresenceOfAnOldFile(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	s := openTestSession(t, b, time.Hour)
	granted(t, s, exclusive("a"))
	wake := queued(t, openTestSession(t, openTest(t, path, nil), time.Hour), exclusive("a"))
	files, err := b.Presence()
	must(t, err)
	must(t, os.Remove(s.endpoint.filePath))
	must(t, s.repair(t.Context()))
	must(t, files[0].Close())
	s.kill()
	select {
	case <-wake:
		t.Error("the lock was granted before its lease ended")
	case <-time.After(5 * probeEvery): // no event shows that nothing is granted
	}
}
