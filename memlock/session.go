package memlock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
	"github.com/holdfast-lock/holdfast/internal/waiters"
)

// session is one client's session. Its fields are guarded by the store's mutex.
type session struct {
	store   *Store
	cfg     driver.SessionConfig
	waiters *waiters.Table
	closed  bool
}

// addWaiter returns a channel that wakes the request: the step that answers has pushed nothing before.
func (n *session) addWaiter(id, name string) <-chan uint64 {
	return n.waiters.Park(n.waiters.Begin(id, name, 0), 0)
}

// do is store.do for a session that is open.
func (n *session) do(ctx context.Context, name string,
	f func(e *rule.Entry, now time.Duration) ([]rule.Grant, error)) error {
	return n.store.do(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		if n.closed {
			return nil, driver.ErrClosed
		}
		return f(e, now)
	})
}

func (n *session) TTL() time.Duration { return n.cfg.TTL }

// Lost is never closed: leases do not depend on the session.
func (n *session) Lost() <-chan struct{} { return nil }

func (n *session) Acquire(ctx context.Context, r *driver.Request) (reply driver.Reply, err error) {
	if err := r.CheckTokens(driver.AllKinds()); err != nil {
		return reply, err
	}
	err = n.do(ctx, r.Name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		token, ahead, grants, err := e.Acquire(now, r, n.cfg.ID, n.cfg.TTL)
		n.waiters.Cancel(r.ID)
		if err != nil || token != 0 {
			reply.Token = token
			return grants, err
		}
		reply.Ahead, reply.Retry, reply.Holder = ahead, e.Retry(now), e.First(now)
		if r.Wait {
			reply.Wake = n.addWaiter(r.ID, r.Name)
		}
		return grants, nil
	})
	return reply, err
}

func (n *session) Cancel(ctx context.Context, name, id string) error {
	return n.do(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		n.waiters.Cancel(id)
		return e.Cancel(now, id), nil
	})
}

func (n *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	return n.do(ctx, h.Name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		n.waiters.Cancel(h.ID) // if it waited, its channel is not needed any more
		return e.Release(now, h.ID, h.Token, keep)
	})
}

func (n *session) Renew(ctx context.Context, holds []driver.Hold) (changes []driver.Change, err error) {
	for i, h := range holds {
		err := n.store.step(ctx, h.Name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
			if n.closed {
				return nil, driver.ErrClosed
			}
			ch, grants := e.Renew(now, h, n.cfg.TTL)
			if ch.Index = i; ch.State != 0 {
				changes = append(changes, ch)
			}
			if len(grants) > 0 { // a renewal by itself is no change
				n.store.watchers.Changed(h.Name)
			}
			return grants, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return changes, nil
}

func (n *session) Downgrade(ctx context.Context, h driver.Hold) error {
	return n.do(ctx, h.Name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		return e.Downgrade(now, h.ID, h.Token)
	})
}

func (n *session) Reduce(ctx context.Context, h driver.Hold, left int) error {
	return n.do(ctx, h.Name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		return e.Reduce(now, h.ID, h.Token, left)
	})
}

func (n *session) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	return n.do(ctx, h.Name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		if err := driver.CheckID(id); err != nil {
			return nil, err
		}
		return e.Adopt(now, h.ID, h.Token, id, info, n.cfg.ID, n.cfg.TTL)
	})
}

func (n *session) SetCount(ctx context.Context, name string, count int64) (created bool, err error) {
	err = n.do(ctx, name, func(e *rule.Entry, now time.Duration) (g []rule.Grant, err error) {
		created, g, err = e.SetCount(now, count)
		return g, err
	})
	return created, err
}

func (n *session) CountDown(ctx context.Context, name, id string) (left int64, err error) {
	err = n.do(ctx, name, func(e *rule.Entry, now time.Duration) (g []rule.Grant, err error) {
		left, g, err = e.CountDown(now, id)
		return g, err
	})
	return left, err
}

func (n *session) Await(ctx context.Context, name, id string) (reply driver.Reply, err error) {
	err = n.do(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
		open, grants, err := e.AskLatch(now, id, n.cfg.ID)
		if n.waiters.Cancel(id); open {
			reply.Token = 1
		} else if err == nil {
			reply.Wake = n.addWaiter(id, name)
		}
		return grants, err
	})
	return reply, err
}

// Close ends all grants and places of the session.
func (n *session) Close(ctx context.Context) error {
	n.store.mu.Lock()
	names := slices.Collect(maps.Keys(n.store.entries))
	n.store.mu.Unlock()
	for _, name := range names {
		err := n.store.do(ctx, name, func(e *rule.Entry, now time.Duration) ([]rule.Grant, error) {
			return e.Leave(now, n.cfg.ID), nil
		})
		if err != nil {
			return err
		}
	}
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	n.closed = true
	delete(n.store.sessions, n.cfg.ID)
	return nil
}
