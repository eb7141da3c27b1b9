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

// flight is an Acquire that is under way.
type flight struct {
	landed chan struct{} // closed when it is over
}

type landing struct {
	rep driver.Reply
	err error
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
	if err := s.b.requests.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	own := *req // which is the caller's again when this returns
	f, err := s.depart(&own)
	if err != nil {
		s.b.requests.leave()
		return driver.Reply{}, err
	}
	going, cancel := context.WithCancel(inGate(context.WithoutCancel(ctx)))
	stop := context.AfterFunc(s.b.ctx, cancel)
	over := make(chan landing, 1)
	runs := s.b.background(func() {
		defer cancel()
		defer stop()
		rep, err := s.acquireNow(going, &own)
		s.land(own.ID, f)
		over <- landing{rep, err}
	})
	if !runs {
		cancel()
		s.land(own.ID, f)
		return driver.Reply{}, fmt.Errorf("backend: %w", driver.ErrClosed)
	}
	select {
	case l := <-over:
		return l.rep, l.err
	case <-ctx.Done():
	}
	time.AfterFunc(s.patience(), cancel)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.b.background(s.b.dropSilent)
	}
	return driver.Reply{}, fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
}

// patience is how long a server may take to answer a request that nobody waits for any more.
func (s *serverSession) patience() time.Duration {
	return min(max(s.ttl/3, 500*time.Millisecond), 5*time.Second)
}

// depart notes a request before the server hears of it.
func (s *serverSession) depart(req *driver.Request) (*flight, error) {
	f := &flight{make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("session: %w", driver.ErrClosed)
	}
	s.flights[req.ID] = f
	return f, nil
}

func (s *serverSession) land(id string, f *flight) {
	s.mu.Lock()
	if s.flights[id] == f {
		delete(s.flights, id)
	}
	s.mu.Unlock()
	s.b.requests.leave()
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
