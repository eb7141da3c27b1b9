package holdfast

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A client that has as many tasks as it may have gives idle grants back when it has fewer. No call-back is
// lost meanwhile.
func TestIdleGrantGoesBackWhenTasksAreFew(t *testing.T) {
	for name, f := range map[string]func(s *stickyIdle, l *Lease){
		"called back": func(s *stickyIdle, l *Lease) { s.c.calledBack("x", l.req.ID) },
		"idle for d":  func(*stickyIdle, *Lease) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStickyIdle(t)
				l := s.take()
				s.ends.Store(0)
				tasks := func(n int) {
					s.c.tasks.mu.Lock()
					defer s.c.tasks.mu.Unlock()
					s.c.tasks.n += n
				}
				tasks(maxTasks)
				f(s, l)
				time.Sleep(time.Minute)
				if s.holders() != 1 {
					t.Error("the client has more tasks than it may have, or does not renew the grant")
				}
				tasks(-maxTasks)
				time.Sleep(leaveAgain)
				if s.holders() != 0 {
					t.Error("the grant has not gone back")
				}
				s.quiet()
			})
		})
	}
}

// A call that takes an idle grant, which was called back and could not go back at once, gives it back.
func TestTakeOfAnIdleGrantThatWasCalledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		s.c.tasks.n += maxTasks
		s.c.calledBack("x", s.record().Holders[0].ID)
		s.take()
		if s.holders() != 0 {
			t.Error("the grant has not gone back")
		}
		s.c.tasks.n -= maxTasks
	})
}

// Nothing waits for the end of idle times after Close: a timer would keep the client in memory for d.
func TestCloseStopsIdleTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		s.c.mu.Lock()
		k := s.c.leases[0].cohort
		s.c.mu.Unlock()
		if err := s.c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if k.idleTimer.Stop() {
			t.Error("the timer runs after Close")
		}
	})
}

// A call-back of an earlier grant does not make the client forget one of the grant that is on its way.
func TestStaleCallBackWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		c := s.c
		stale := s.record().Holders[0].ID
		c.calledBack("x", stale)
		synctest.Wait()
		s.acquired = func() {
			c.calledBack("x", s.record().Holders[0].ID)
			c.calledBack("x", stale)
		}
		s.take()
		s.acquired = nil
		if s.holders() != 0 {
			t.Error("a grant that was called back before its answer came has stayed")
		}
	})
}

// However many names a client has taken often before, the blocks of another one grow.
func TestBlocksGrowForEachName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		asked := 0
		s.acquired = func() { asked++ }
		often := func(name string, times int) {
			for range times {
				l, err := s.c.Mutex(name, Sticky(time.Second)).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range maxFull + 100 {
			often(fmt.Sprint(i), 64) // its block is used up
		}
		asked = 0
		often("another", 2000)
		if asked > 10 {
			t.Errorf("asked %d times for 2,000 leases", asked)
		}
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		if n := len(s.c.cohorts); n > maxFull+2 {
			t.Errorf("%d cohorts", n)
		}
	})
}
