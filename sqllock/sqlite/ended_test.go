package sqlite

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

// A grant that came by a push ends without a release. Neither the renewal that finds out nor a late
// release leaves the request among the waiters, whose names the session looks at again and again.
func TestSQLiteEndedGrantIsNoWaiter(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s := openTestSession(t, b, time.Hour)
	for _, learn := range []func(driver.Hold) error{
		func(h driver.Hold) error {
			ch, err := s.Renew(t.Context(), []driver.Hold{h})
			if err == nil && (len(ch) != 1 || ch[0].State != driver.Gone) {
				t.Errorf("Renew of a broken grant: %v", ch)
			}
			return err
		},
		func(h driver.Hold) error {
			if err := s.Release(t.Context(), h, 0); !errors.Is(err, driver.ErrGone) {
				t.Errorf("Release of a broken grant: %v", err)
			}
			return nil
		},
	} {
		first, req := granted(t, s, exclusive("x")), exclusive("x")
		wake := queued(t, s, req)
		must(t, s.Release(t.Context(), first, 0))
		h := holdOf(req, woken(t, wake))
		must(t, b.Break(t.Context(), "x", h.Token))
		must(t, learn(h))
		if n := s.waiters.Len(); n != 0 {
			t.Errorf("%d requests still wait", n)
		}
	}
}
