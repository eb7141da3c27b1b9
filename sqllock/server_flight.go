package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// An Acquire whose caller gives up goes on until the server has answered, and a Cancel of the same request waits for
// that. Otherwise the Cancel, on another connection, could overtake it, find nothing, and leave the grant behind. The
// connection stays good, too: a database driver closes one whose statement is given up.

// flight is an Acquire that is under way, and its context, which has the values of its caller's and does not end with it.
type flight struct {
	context.Context
	caller context.Context
	req    driver.Request // its own: the caller's is the caller's again when Acquire returns
	pass   *pass

	landed chan struct{} // closed when it is over, with this outcome
	rep    driver.Reply
	err    error
}

// callerKey is what the context of somebody's caller is the value of, where that does not end with it.
type callerKey struct{}

// Value implements [context.Context].
func (f *flight) Value(key any) any {
	switch key {
	case callerKey{}:
		return f.caller
	case passKey{}:
		return f.pass
	}
	if v := f.Context.Value(key); v != nil {
		return v
	}
	return f.caller.Value(key)
}

// Acquire implements [driver.Session].
func (s *serverSession) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if err := errors.Join(s.usable(), req.Check()); err != nil {
		return driver.Reply{}, err
	}
	if err := ctx.Err(); err != nil { // nothing is sent
		return driver.Reply{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if err := s.settled(ctx, req.ID); err != nil {
		return driver.Reply{}, err
	}
	p, err := s.b.requests.enter(ctx, req.Name)
	if err != nil {
		return driver.Reply{}, err
	}
	going, cancel := context.WithCancel(s.b.ctx)
	f := &flight{Context: going, caller: ctx, req: *req, pass: p, landed: make(chan struct{})}
	if !s.depart(f) || !s.b.background(func() { defer cancel(); s.fly(f) }) {
		cancel()
		f.err = fmt.Errorf("session: %w", driver.ErrClosed)
		s.land(f)
		return driver.Reply{}, f.err
	}
	select {
	case <-f.landed:
		return f.rep, f.err
	case <-ctx.Done():
	}
	time.AfterFunc(s.patience(), cancel)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.b.background(s.b.dropSilent)
	}
	return driver.Reply{}, fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
}

func (s *serverSession) fly(f *flight) {
	if _, limited := f.caller.Deadline(); limited { // and so is f, a while after that
		f.rep, f.err = s.acquireNow(f, &f.req)
	} else {
		f.err = bounded(f, func(ctx context.Context) (err error) {
			f.rep, err = s.acquireNow(ctx, &f.req)
			return err
		})
	}
	s.land(f)
}

// patience is how long a server may take to answer a request that nobody waits for any more.
func (s *serverSession) patience() time.Duration {
	return min(max(s.ttl/3, 500*time.Millisecond), 5*time.Second)
}

// depart notes a request before the server hears of it, unless s is closed.
func (s *serverSession) depart(f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.flights[f.req.ID] = f
	}
	return !s.closed
}

func (s *serverSession) land(f *flight) {
	s.mu.Lock()
	if s.flights[f.req.ID] == f {
		delete(s.flights, f.req.ID)
	}
	s.mu.Unlock()
	f.pass.leave()
	close(f.landed)
}

// settled waits for what is under way about a request.
func (s *serverSession) settled(ctx context.Context, id string) error {
	s.mu.Lock()
	f := s.flights[id]
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.await(ctx)
}

func (f *flight) await(ctx context.Context) error {
	select {
	case <-f.landed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the request was not answered yet: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// allSettled waits for everything that is under way.
func (s *serverSession) allSettled(ctx context.Context) (err error) {
	s.mu.Lock()
	all := make([]*flight, 0, len(s.flights))
	for _, f := range s.flights {
		all = append(all, f)
	}
	s.mu.Unlock()
	for _, f := range all {
		err = errors.Join(err, f.await(ctx))
	}
	return err
}
