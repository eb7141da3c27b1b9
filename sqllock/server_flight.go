package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// An Acquire whose caller gives up continues until the server has answered, and a Cancel of the
// same request waits for that. Otherwise the Cancel could overtake the Acquire on another
// connection, find nothing, and leave the grant behind. The connection survives, too: a database
// driver closes a connection whose statement is cancelled.

// flight is an Acquire in flight, and its context. The context has the values of its caller's
// context, but does not end with that.
type flight struct {
	context.Context
	caller context.Context
	req    driver.Request // a copy: the caller may reuse its request when Acquire returns
	pass   *pass

	landed chan struct{} // closed at the end; then rep and err are valid
	rep    driver.Reply
	err    error
}

// callerKey is the key for the caller's context, in a context that outlives that.
type callerKey struct{}

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

func (s *serverSession) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if err := errors.Join(s.usable(), req.Check(), req.CheckTokens(s.b.Kinds())); err != nil {
		return driver.Reply{}, err
	}
	if err := ctx.Err(); err != nil { // send nothing
		return driver.Reply{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if err := s.awaitFlight(ctx, req.ID); err != nil {
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
	if _, limited := f.caller.Deadline(); limited { // f ends a while after that deadline
		f.rep, f.err = s.acquireNow(f, &f.req)
	} else {
		f.err = bounded(f, func(ctx context.Context) (err error) {
			f.rep, err = s.acquireNow(ctx, &f.req)
			return err
		})
	}
	s.land(f)
}

// patience bounds the server's answer to a request whose caller has given up.
func (s *serverSession) patience() time.Duration {
	return min(max(s.ttl/3, 500*time.Millisecond), 5*time.Second)
}

// depart records a request before the server gets it, unless s is closed.
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

// awaitFlight waits for a request's Acquire in flight.
func (s *serverSession) awaitFlight(ctx context.Context, id string) error {
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
		return fmt.Errorf("%w: the request has not been answered: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// awaitFlights waits for every Acquire in flight.
func (s *serverSession) awaitFlights(ctx context.Context) (err error) {
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
