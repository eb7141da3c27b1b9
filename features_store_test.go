package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// lateStore is a faultyStore whose exchanges may also arrive after their caller has given them up.
type lateStore struct {
	*faultyStore
	late bool
	stop chan struct{} // closed when no caller waits any more
}

func (s *lateStore) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	n, err := s.faultyStore.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &lateSession{faultySession: n.(*faultySession), ls: s, wakes: map[string]chan uint64{}}, nil
}

type lateSession struct {
	*faultySession
	ls    *lateStore
	mu    sync.Mutex
	wakes map[string]chan uint64
}

// forward sends what a wake of the store yields to the channel that the client has.
func (n *lateSession) forward(id string, wake <-chan uint64) {
	if wake == nil {
		return
	}
	n.s.calls.Go(func() {
		select {
		case token := <-wake:
			n.mu.Lock()
			defer n.mu.Unlock()
			if ch := n.wakes[id]; ch != nil {
				select {
				case <-ch:
				default:
				}
				ch <- token
			}
		case <-n.ls.stop:
		}
	})
}

// lateness sometimes runs do later, and returns ErrUncertain.
func (n *lateSession) lateness(ctx context.Context, do func(context.Context)) error {
	if !n.ls.late || !n.s.chance(40) {
		return nil
	}
	wait, d := n.s.pause(30*time.Millisecond), n.s.pause(150*time.Millisecond)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	n.s.calls.Go(func() { time.Sleep(d); do(context.Background()) })
	return driver.ErrUncertain
}

func (n *lateSession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	req := *r
	if err := n.lateness(ctx, func(ctx context.Context) {
		reply, _ := n.Session.Acquire(ctx, &req)
		n.forward(req.ID, reply.Wake)
	}); err != nil {
		return driver.Reply{}, err
	}
	n.mu.Lock()
	ch := make(chan uint64, 1)
	n.wakes[r.ID] = ch
	n.mu.Unlock()
	reply, err := n.faultySession.Acquire(ctx, r)
	if err == nil && reply.Wake != nil {
		n.forward(r.ID, reply.Wake)
		reply.Wake = ch
	}
	return reply, err
}

func (n *lateSession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if err := n.lateness(ctx, func(ctx context.Context) { _, _ = n.Session.Renew(ctx, holds) }); err != nil {
		return nil, err
	}
	return n.faultySession.Renew(ctx, holds)
}

func (n *lateSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if err := n.lateness(ctx, func(ctx context.Context) { _ = n.Session.Release(ctx, h, keep) }); err != nil {
		return err
	}
	return n.faultySession.Release(ctx, h, keep)
}

func (n *lateSession) Cancel(ctx context.Context, name, id string) error {
	if err := n.lateness(ctx, func(ctx context.Context) { _ = n.Session.Cancel(ctx, name, id) }); err != nil {
		return err
	}
	return n.faultySession.Cancel(ctx, name, id)
}

func (n *lateSession) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if err := n.lateness(ctx, func(ctx context.Context) { _ = n.Session.Adopt(ctx, h, id, info) }); err != nil {
		return err
	}
	return n.exchange(func() error { return n.Session.Adopt(ctx, h, id, info) })
}

func (n *lateSession) Downgrade(ctx context.Context, h driver.Hold) error {
	if err := n.lateness(ctx, func(ctx context.Context) { _ = n.Session.Downgrade(ctx, h) }); err != nil {
		return err
	}
	return n.exchange(func() error { return n.Session.Downgrade(ctx, h) })
}
