package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/waiters"
)

// serverSession is one client's session. The server knows no sessions: each grant and each place in
// the queue expires by itself.
type serverSession struct {
	b   *Server
	id  string // begins with the Server's id
	ttl time.Duration

	mu     sync.Mutex
	live   map[string]request // requests that hold, wait or ask, by request id
	closed bool

	flights map[string]*flight // by request id

	renewals int64 // number of batches tried
}

// request is what a session knows of one of its requests.
type request struct {
	name  string
	group bool // other holders may share the name: the lease is not in the row's own columns

	ending bool // a Release of it has failed, and may be repeated

	tried  int64 // number of the batch that last tried to renew it
	failed int   // consecutive failed renewals
}

// Open implements [driver.Backend].
func (b *Server) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if err := cmp.Or(cfg.Check(), b.ready(ctx)); err != nil {
		return nil, err
	}
	if err := b.listen(ctx); err != nil {
		return nil, err
	}
	s := &serverSession{b: b, id: b.id + "." + cfg.ID, ttl: cfg.TTL.Truncate(time.Microsecond), live: map[string]request{},
		flights: map[string]*flight{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("backend: %w", driver.ErrClosed)
	}
	b.open[s] = true
	return s, nil
}

func (s *serverSession) TTL() time.Duration { return s.ttl }

// Lost implements [driver.Session]. It returns nil: each lease expires by itself.
func (s *serverSession) Lost() <-chan struct{} { return nil }

func (s *serverSession) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("session: %w", driver.ErrClosed)
	}
	return nil
}

// register records a request before the server gets it, and reports whether it is new. It refuses
// if the session is closed.
func (s *serverSession) register(id string, r request) (fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.b.waiters.Cancel(id)
		return false, fmt.Errorf("session: %w", driver.ErrClosed)
	}
	_, there := s.live[id]
	s.live[id] = r
	return !there, nil
}

func (s *serverSession) knows(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.live[id]
	return there
}

func (s *serverSession) unregister(id string) {
	s.b.waiters.Cancel(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
}

// ends is called after a Release with its error. A grant that it has left on record stays known while
// its lease lasts: the caller repeats the Release. Otherwise a notification of that grant, which may
// be repeated, would make the Server give it back, together with its minimum hold.
func (s *serverSession) ends(id string, err error) {
	s.mu.Lock()
	r, there := s.live[id]
	open := there && (errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable))
	if open && !r.ending {
		r.ending = true
		s.live[id] = r
		time.AfterFunc(s.ttl, func() { s.unregister(id) })
	}
	s.mu.Unlock()
	if !open {
		s.unregister(id)
	}
}

func (s *serverSession) change(ctx context.Context, name string, f func(r *record) error) error {
	return s.b.with(ctx, name, func(ctx context.Context) error { return s.b.change(ctx, s.b.run, one(name, f)) })
}

var errCancelled = fmt.Errorf("%w: the request was cancelled", driver.ErrUnavailable)

// acquireNow is Acquire for a caller that does not give up.
func (s *serverSession) acquireNow(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	w := s.b.waiters.Begin(req.ID, req.Name, waitKind(req.Mode))
	fresh, err := s.register(req.ID, request{name: req.Name, group: req.Mode != driver.Exclusive})
	if err != nil {
		return driver.Reply{}, err
	}
	var rep driver.Reply
	var last uint64
	known := false
	if fresh && req.Mode == driver.Exclusive && !s.b.waiters.Cancelled(w) {
		rep, known, err = s.take(ctx, req)
		if rep.Holder != nil {
			last = rep.Holder.Token // a grant of this request has a larger one
		}
	}
	if !known && err == nil {
		rep, last, err = s.acquire(ctx, req, w)
	}
	if err != nil {
		s.b.waiters.End(req.ID, w)
		if driver.IsFinal(err) {
			s.unregister(req.ID)
		}
		return driver.Reply{}, err
	}
	if s.b.waiters.Cancelled(w) { // perhaps before the server got the request
		s.unregister(req.ID)
		return driver.Reply{}, errors.Join(errCancelled, s.b.withdraw(ctx, req.Name, req.ID))
	}
	switch {
	case rep.Token != 0:
		s.b.waiters.End(req.ID, w)
	case !req.Wait:
		s.unregister(req.ID)
	default:
		rep.Wake = s.b.waiters.Park(w, last)
		s.b.expect()
	}
	return rep, nil
}

// take asks for an exclusive grant in one statement.
func (s *serverSession) take(ctx context.Context, req *driver.Request) (rep driver.Reply, known bool, err error) {
	t := &Take{
		Name: req.Name, ID: req.ID, Session: s.id, TTL: micros(driver.LeaseWithin(req.Lease, s.ttl)),
		MinHold: microsUp(req.MinHold), Tokens: int64(req.Block()),
		Info: escape(req.Info), Floor: s.b.floor.Load(), Wait: req.Wait, MaxText: int64(s.b.maxText()),
	}
	var got Taken
	err = s.b.single(ctx, s.b.run, func(ctx context.Context, q Querier) (err error) {
		got, err = s.b.d.Take(ctx, q, t)
		return err
	})
	if errors.Is(err, errOutOfRange) {
		return rep, false, nil
	}
	return driver.Reply{Token: uint64(got.Token), Ahead: got.Ahead, Retry: got.Retry, Holder: got.Holder},
		got.Token != 0 || got.Queued, err
}

func microsUp(d time.Duration) int64 { return micros(d + time.Microsecond - 1) }

func (s *serverSession) acquire(ctx context.Context, req *driver.Request, w *waiters.Waiter) (
	rep driver.Reply, last uint64, err error) {
	err = s.b.change(ctx, s.b.run, one(req.Name, func(r *record) error {
		if s.b.waiters.Cancelled(w) {
			return errCancelled
		}
		now := ofMicros(r.now)
		token, ahead, grants, err := r.entry.Acquire(now, req, s.id, s.ttl)
		r.grants = grants
		rep = driver.Reply{Token: token}
		if token == 0 {
			rep.Ahead, rep.Retry, rep.Holder = ahead, r.entry.Retry(now), r.entry.First(now)
		}
		last = r.entry.Last
		return err
	}))
	if err != nil {
		return driver.Reply{}, 0, err
	}
	return rep, last, nil
}

func (s *serverSession) Cancel(ctx context.Context, name, id string) error {
	s.b.waiters.Cancel(id)
	if err := errors.Join(s.usable(), driver.CheckName(name)); err != nil {
		return err
	}
	if err := s.awaitFlight(ctx, id); err != nil {
		return err
	}
	s.unregister(id) // even if this call fails: received gives back a grant that arrives later
	return s.b.cancels.together(ctx, name, id, func(ids []string) error {
		return s.b.with(ctx, name, func(ctx context.Context) error { return s.b.withdraw(ctx, name, ids...) })
	})
}

// withdraw is Cancel for a caller that has entered a gate. It works for closed sessions too.
func (b *Server) withdraw(ctx context.Context, name string, ids ...string) error {
	if len(ids) == 1 {
		left := false
		err := b.single(ctx, b.run, func(ctx context.Context, q Querier) (err error) {
			left, err = b.d.Leave(ctx, q, name, ids[0])
			return err
		})
		if left || err != nil {
			return err
		}
	}
	return b.change(ctx, b.run, one(name, func(r *record) error {
		r.grants = r.entry.Cancel(ofMicros(r.now), ids...)
		return nil
	}))
}

func (s *serverSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) (err error) {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name)); err != nil {
		return err
	}
	if keep < 0 || keep > driver.MaxHold {
		return fmt.Errorf("%w time to keep the name, %v: allowed are 0 to %v", driver.ErrInvalid, keep, driver.MaxHold)
	}
	s.mu.Lock()
	r, mine := s.live[h.ID]
	mine = mine && !r.ending
	s.mu.Unlock()
	defer func() { s.ends(h.ID, err) }()
	return s.b.with(ctx, h.Name, func(ctx context.Context) error {
		var d doubt
		run := d.of(s.b.run)
		if keep == 0 && mine && !r.group {
			if done, err := s.hand(ctx, run, h); done || err != nil {
				return err
			}
		}
		err := s.b.change(ctx, run, one(h.Name, func(r *record) (err error) {
			r.recall(h)
			d.see(r, h.Token)
			r.grants, err = r.entry.Release(ofMicros(r.now), h.ID, h.Token, keep)
			if driver.IsOver(err) {
				r.repeat()
			}
			return err
		}))
		return d.ended(err)
	})
}

// hand releases a grant and hands the lock over in one statement. The next holder is notified after
// the commit.
func (s *serverSession) hand(ctx context.Context, run runner, h driver.Hold) (done bool, err error) {
	b := s.b
	var got Handed
	err = b.single(ctx, run, func(ctx context.Context, q Querier) (err error) {
		got, err = b.d.Hand(ctx, q, &ReleaseReq{
			Name: h.Name, ID: h.ID, Token: int64(h.Token), Floor: b.floor.Load(), Server: b.id, Near: b.near(),
			Window: micros(s.ttl / 3),
		})
		return err
	})
	switch {
	case errors.Is(err, errOutOfRange):
		return false, nil
	case err != nil:
		return false, err
	case got.To != nil:
		b.handed(*got.To)
	}
	return got.Done, nil
}

func (s *serverSession) Downgrade(ctx context.Context, h driver.Hold) error {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name)); err != nil {
		return err
	}
	err := s.change(ctx, h.Name, func(r *record) (err error) {
		r.recall(h)
		r.grants, err = r.entry.Downgrade(ofMicros(r.now), h.ID, h.Token)
		return err
	})
	if err == nil {
		_, err = s.register(h.ID, request{name: h.Name, group: true})
	}
	return err
}

func (s *serverSession) Reduce(ctx context.Context, h driver.Hold, n int) error {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name)); err != nil {
		return err
	}
	return s.change(ctx, h.Name, func(r *record) (err error) {
		r.grants, err = r.entry.Reduce(ofMicros(r.now), h.ID, h.Token, n)
		return err
	})
}

func (s *serverSession) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name), driver.CheckID(id)); err != nil {
		return err
	}
	// First: a notification of the grant may come before the answer. The mode is not known here.
	fresh, err := s.register(id, request{name: h.Name, group: true})
	if err != nil {
		return err
	}
	err = s.change(ctx, h.Name, func(r *record) (err error) {
		r.recall(h)
		r.grants, err = r.entry.Adopt(ofMicros(r.now), h.ID, h.Token, id, info, s.id, s.ttl)
		return err
	})
	if fresh && err != nil && !errors.Is(err, driver.ErrUncertain) {
		s.unregister(id)
	}
	return err
}

func (s *serverSession) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	var names []string
	for id, r := range s.live {
		names = append(names, r.name)
		s.b.waiters.Cancel(id)
	}
	s.live = map[string]request{}
	s.mu.Unlock()
	if !first {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	limited, cancel := half(ctx)
	err := s.awaitFlights(limited) // grants that arrived for them are given back
	cancel()
	for batch := range slices.Chunk(names, rowsAtOnce) {
		err = errors.Join(err, s.b.with(ctx, "", func(ctx context.Context) error {
			return s.b.change(ctx, s.b.run, step{names: batch, do: func(_ int, r *record) error {
				r.grants = r.entry.Leave(ofMicros(r.now), s.id)
				return nil
			}})
		}))
	}
	s.b.mu.Lock()
	delete(s.b.open, s)
	s.b.mu.Unlock()
	return err
}
