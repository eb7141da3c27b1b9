package sqlite

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestSQLiteHandOver(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s1, s2 := openTestSession(t, b, time.Minute), openTestSession(t, b, time.Minute)
	h1 := granted(t, s1, exclusive("a"))
	req2 := exclusive("a")
	wake := queued(t, s2, req2)
	must(t, s1.Release(t.Context(), h1, 0))
	token := woken(t, wake)
	if token <= h1.Token {
		t.Fatalf("token %d after %d", token, h1.Token)
	}
	if err := s1.Release(t.Context(), h1, 0); !errors.Is(err, driver.ErrTaken) {
		t.Fatalf("released twice: %v; want ErrTaken", err)
	}
	must(t, s2.Release(t.Context(), holdOf(req2, token), 0))
	if err := s1.Release(t.Context(), h1, 0); !errors.Is(err, driver.ErrGone) {
		t.Fatalf("released twice: %v; want ErrGone", err)
	}
	checkIntegrity(t, b)
}

func TestSQLiteKilledHolder(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s1, s2 := openTestSession(t, b, time.Hour), openTestSession(t, b, time.Hour)
	granted(t, s1, exclusive("a"))
	sem := permits("s", 3, 3)
	granted(t, s1, sem)
	wake, wakeSem := queued(t, s2, exclusive("a")), queued(t, s2, permits("s", 1, 3))
	s1.kill()
	start := time.Now()
	woken(t, wake)
	woken(t, wakeSem)
	t.Logf("noticed after %v", time.Since(start))
	checkIntegrity(t, b)
}

// With KeepLeases a killed holder's lock stays until its lease ends: others may trust it.
func TestSQLiteKeepLeases(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	b.KeepLeases()
	const ttl = 5 * time.Second
	s1, s2 := openTestSession(t, b, ttl), openTestSession(t, b, time.Hour)
	start := time.Now()
	granted(t, s1, exclusive("a"))
	if err := os.Remove(s1.endpoint.filePath); err != nil {
		t.Fatal(err)
	}
	if err := s1.repair(t.Context()); err != nil { // with a new file
		t.Fatal(err)
	}
	waits := exclusive("a")
	queued(t, s2, waits)
	s1.kill()
	for token := uint64(0); token == 0; time.Sleep(20 * time.Millisecond) {
		r, err := s2.Acquire(t.Context(), waits)
		if err != nil || time.Since(start) > time.Minute {
			t.Fatal(err, time.Since(start))
		}
		token = r.Token
	}
	if took := time.Since(start); took < ttl-10*time.Millisecond {
		t.Errorf("another got the lock after %v of a lease of %v", took, ttl)
	}
}
