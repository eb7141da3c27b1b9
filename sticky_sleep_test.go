package holdfast

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A release after the machine has slept asks the store whether the lease still exists.
func TestStickyReleaseAfterASleep(t *testing.T) {
	for name, more := range map[string]func(*Lease){
		"with nothing else": func(*Lease) {},
		"with a context":    func(l *Lease) { l.Context(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStickyIdle(t)
				l, err := s.mutex().Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				more(l)
				s.slept.Add(int64(10 * time.Second)) // nobody has noticed: the watcher looks once a second
				if err := s.store.Break(t.Context(), "x", l.grantToken); err != nil {
					t.Fatal(err)
				}
				if err := l.Release(); err == nil {
					t.Error("Release of a lease that ended in the sleep succeeds")
				}
				s.take()
			})
		})
	}
}

// A TryLock after a sleep is not refused because of its own client's idle grant.
func TestStickyTryLockAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		s.slow.Store(int64(time.Millisecond))
		s.slept.Add(int64(10 * time.Second))
		l, err := s.mutex().TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		s.slow.Store(0)
	})
}
