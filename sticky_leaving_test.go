package holdfast

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// leaving is a client whose idle grant of x is on its way back, for another millisecond.
func leaving(t *testing.T) *stickyIdle {
	s := newStickyIdle(t)
	s.slow.Store(int64(time.Millisecond))
	t.Cleanup(func() { s.slow.Store(0) })
	s.c.calledBack("x", s.record().Holders[0].ID)
	return s
}

// A call beside a give-back is not refused because of its own client's grant, whatever it wants.
func TestOtherKindBesideAGiveBack(t *testing.T) {
	for name, take := range map[string]func(context.Context, *Client) (*Lease, error){
		"Acquire": func(ctx context.Context, c *Client) (*Lease, error) { return c.Semaphore("x", 2).Acquire(ctx, 1) },
		"TryAcquire": func(ctx context.Context, c *Client) (*Lease, error) {
			return c.Semaphore("x", 2).TryAcquire(ctx, 1)
		},
		"TryRLock": func(ctx context.Context, c *Client) (*Lease, error) { return c.RWMutex("x").TryRLock(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := leaving(t)
				l, err := take(t.Context(), s.c)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The same if the grant was called back when the client had as many tasks as it may have.
func TestCallBesideALateGiveBack(t *testing.T) {
	for name, take := range map[string]func(context.Context, *Mutex) (*Lease, error){
		"TryLock": func(ctx context.Context, m *Mutex) (*Lease, error) { return m.TryLock(ctx) },
		"Lock":    func(ctx context.Context, m *Mutex) (*Lease, error) { return m.Lock(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStickyIdle(t)
				id := s.record().Holders[0].ID
				tasks := func(n int) {
					s.c.tasks.mu.Lock()
					defer s.c.tasks.mu.Unlock()
					s.c.tasks.n += n
				}
				tasks(maxTasks)
				s.c.calledBack("x", id)
				tasks(-maxTasks)
				s.slow.Store(int64(time.Millisecond))
				time.Sleep(leaveAgain)
				synctest.Wait()
				l, err := take(t.Context(), s.mutex())
				if err != nil {
					t.Fatal(err)
				}
				if l.kept == mayBeKept {
					t.Error("the call has queued behind its own client's grant")
				}
				s.slow.Store(0)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
