package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// server is one of the quorum's, as the backend knows it.
type server struct {
	Server
	prefix     string
	quarantine time.Duration
	set        string // the names of all servers
	watch      redislock.Watch

	mu     sync.Mutex
	member *redislock.Member
	closed bool
	dial   *dialing
	again  time.Time // when it may be dialled again after a failure
	err    error     // of that
}

// dialing is an attempt to connect.
type dialing struct {
	done chan struct{}
}

const redial = 100 * time.Millisecond // after a failure to connect

// get returns the member, connecting to it first if need be.
func (s *server) get(ctx context.Context) (*redislock.Member, error) {
	for {
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return nil, driver.ErrClosed
		case s.member != nil:
			defer s.mu.Unlock()
			return s.member, nil
		case s.dial == nil && time.Now().Before(s.again):
			defer s.mu.Unlock()
			return nil, s.err
		case s.dial == nil:
			s.dial = &dialing{make(chan struct{})}
			go s.connect(s.dial)
		}
		d := s.dial
		s.mu.Unlock()
		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s: %w", driver.ErrUnavailable, s.Name, ctx.Err())
		}
	}
}

func (s *server) connect(d *dialing) {
	defer close(d.done)
	conn, err := s.Dial()
	var m *redislock.Member
	if err == nil {
		if m, err = redislock.NewMember(conn, s.prefix, s.quarantine, s.set, s.watch); err != nil {
			_ = conn.Close()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dial = nil
	switch {
	case err != nil:
		s.err, s.again = fmt.Errorf("%s: %w", s.Name, err), time.Now().Add(redial)
	case s.closed:
		_ = m.Close() // nobody waits for it any more
	default:
		s.member = m
	}
}

// connected returns the member if it is connected to, else nil.
func (s *server) connected() *redislock.Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member
}

func (s *server) close() error {
	s.mu.Lock()
	s.closed = true
	d, m := s.dial, s.member
	s.member = nil
	s.mu.Unlock()
	if d != nil {
		<-d.done // dialling is bounded
	}
	if m == nil {
		return nil
	}
	return m.Close()
}

// member is a session at one server: a *redislock.MemberSession, but for the model test.
type member interface {
	Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error)
	Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error
	Raise(ctx context.Context, h driver.Hold, token uint64, renew bool) (uint64, time.Duration, error)
	Move(ctx context.Context, name, id string, place uint64) error
	Claim(ctx context.Context, name, id string, rank int) error
	Yield(ctx context.Context, h driver.Hold, to string, place uint64) (<-chan uint64, uint64, error)
	Cancel(ctx context.Context, name, id string) error
	Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error)
	Downgrade(ctx context.Context, h driver.Hold) error
	Adopt(ctx context.Context, h driver.Hold, id, info string) error
	Close(ctx context.Context) error
}

// post is a session's presence at one server.
type post struct {
	*server
	index  int
	clocks *clocks
	here   atomic.Pointer[member]
	slow   atomic.Int64   // since when it leaves somebody waiting for an answer, by the session's clock; 0: it answers
	out    atomic.Int32   // exchanges under way
	busy   sync.WaitGroup // the same, and those that are about to begin
	until  atomic.Int64   // newborn: do not ask before this time, in microseconds of the session's clock

	mu     sync.Mutex
	err    error             // why there is no session here
	unsaid map[string]parted // what it has yet to hear
}

// parted is a request that has ended, of which the server may not have heard.
type parted struct {
	name  string
	until time.Time // then it has run out there
}

const (
	stuckMost   = 8    // exchanges under way with a server that has not answered for stuckAfter; others are not sent
	mostUnsaid  = 8192 // endings kept for a server that does not answer; more run out there
	flushAtOnce = 64
)

// at returns the session at this server; nil if there is none yet.
func (p *post) at() member {
	if m := p.here.Load(); m != nil {
		return *m
	}
	return nil
}

// stuckAfter is in microseconds. A server that is merely busy answers something meanwhile.
const stuckAfter = 500_000

// stuck reports whether it makes no sense to send more.
func (p *post) stuck(now int64) bool {
	since := p.slow.Load()
	return since != 0 && now-since > stuckAfter && p.out.Load() >= stuckMost
}

// slows notes that the server has left somebody waiting.
func (p *post) slows(now int64) { p.slow.CompareAndSwap(0, max(now, 1)) }

// session returns the session at this server, or why it cannot be asked now.
func (p *post) session(now int64) (member, error) {
	s := p.at()
	switch {
	case s == nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err != nil {
			return nil, p.err
		}
		return nil, fmt.Errorf("%w: %s: not connected", driver.ErrUnavailable, p.Name)
	case p.stuck(now):
		return nil, fmt.Errorf("%w: %s: it does not answer", driver.ErrUnavailable, p.Name)
	case p.until.Load() > now:
		return nil, fmt.Errorf("%s: %w", p.Name, &redislock.Newborn{Left: time.Duration(p.until.Load()-now) * time.Microsecond})
	}
	if err := p.clocks.check(p.index); err != nil {
		return nil, err
	}
	return s, nil
}

// do makes one exchange, and notes how the server is.
func (p *post) do(now int64, f func(member) error) error {
	s, err := p.session(now)
	if err != nil {
		return err
	}
	p.out.Add(1)
	err = f(s)
	p.out.Add(-1)
	var young *redislock.Newborn
	var set *moved
	switch {
	case err == nil || driver.IsFinal(err) || driver.IsOver(err) || errors.As(err, &set):
		p.slow.Store(0)
	case errors.As(err, &young):
		p.slow.Store(0)
		// Not much longer than need be, since another client may declare it new.
		p.until.Store(now + min(young.Left, 200*time.Millisecond).Microseconds())
	case errors.Is(err, driver.ErrUncertain), errors.Is(err, driver.ErrUnavailable):
		p.slows(now)
	}
	if err != nil && !driver.IsOver(err) {
		err = fmt.Errorf("%s: %w", p.Name, err)
	}
	return err
}

// owe notes that the server has yet to hear that a request has ended.
func (p *post) owe(name, id string, ttl time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsaid == nil {
		p.unsaid = map[string]parted{}
	}
	if len(p.unsaid) < mostUnsaid {
		p.unsaid[id] = parted{name, time.Now().Add(2 * ttl)}
	}
}

// owed takes some of what the server has yet to hear.
func (p *post) owed() map[string]parted {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := map[string]parted{}
	now := time.Now()
	for id, what := range p.unsaid {
		if len(some) == flushAtOnce {
			break
		}
		delete(p.unsaid, id)
		if now.Before(what.until) {
			some[id] = what
		}
	}
	return some
}

// lone reports whether err is final at one server, and says nothing of the others.
func lone(err error) bool {
	return errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrDamaged)
}

// unheard reports whether a server has yet to be told what it answered with err: it did not hear it, or refuses
// now, and may not do so later.
func unheard(err error) bool {
	return err != nil && !driver.IsOver(err) && (!driver.IsFinal(err) || errors.Is(err, driver.ErrRefused))
}
