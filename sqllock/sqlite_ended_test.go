package sqllock

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestSQLiteEndedSession marks a session as ended, as a removal does first. The session gets
// nothing more. If the removal is interrupted there, the next process that finds it dead completes
// it.
func TestSQLiteEndedSession(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s, other := openTestSession(t, b, time.Hour), openTestSession(t, b, time.Hour)
	granted(t, s, exclusive("a"))
	granted(t, s, permits("b", 1, 1))
	must(t, b.st.write(t.Context(), func(x *tx) error {
		_, err := x.c.exec(qEndSession, s.id)
		return err
	}))
	for _, req := range []*driver.Request{exclusive("c"), permits("d", 1, 1)} {
		if rep, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("acquire %s in an ended session: %+v, %v", req.Name, rep, err)
		}
	}
	wakes := []<-chan uint64{queued(t, other, exclusive("a")), queued(t, other, permits("b", 1, 1))}
	s.kill()
	for _, wake := range wakes {
		woken(t, wake)
	}
	checkSums(t, b)
}

// TestSQLiteProberSeesChange kills a holder that got the lock while the prober knew another one.
func TestSQLiteProberSeesChange(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s := openTestSession(t, b, time.Hour)
	for range 4 {
		first, next := openTestSession(t, b, time.Hour), openTestSession(t, b, time.Hour)
		req := exclusive("x")
		h := granted(t, first, req)
		heir := queued(t, next, exclusive("x"))
		mine := exclusive("x")
		wake := queued(t, s, mine)
		time.Sleep(3 * probeEvery) // the test needs time without any event
		must(t, first.Release(t.Context(), h, 0))
		woken(t, heir)
		next.kill()
		must(t, s.Release(t.Context(), holdOf(mine, woken(t, wake)), 0))
		must(t, first.Close(t.Context()))
	}
}
