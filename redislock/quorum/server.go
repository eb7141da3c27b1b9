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

// server is one server of the quorum, as the backend knows it.
type server struct {
	Server
	prefix     string
	quarantine time.Duration
	set        string // the names of all servers
	watch      redislock.Watch
	life       context.Context // ends with close
	end        context.CancelFunc

	mu     sync.Mutex
	member *redislock.Member
	closed bool
	dial   *dialing
	again  time.Time // earliest next attempt to connect after a failure
	err    error     // of that failure
	vain   int       // queries that have waited for it in vain, one after the other
	waited time.Time // the last of them
}

func newServer(s Server) *server {
	one := &server{Server: s}
	one.life, one.end = context.WithCancel(context.Background())
	return one
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
			return nil, ofServer(s.Name, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err()))
		}
	}
}

func (s *server) connect(d *dialing) {
	defer close(d.done)
	conn, err := s.Dial(s.life)
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
		s.err, s.again = ofServer(s.Name, err), time.Now().Add(redial)
	case s.closed:
		_ = m.Close() // its caller has gone
	default:
		s.member = m
	}
}

// connected returns the member if there is a connection, else nil.
func (s *server) connected() *redislock.Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member
}

// waitedFor notes whether a query that has waited for the server got an answer.
func (s *server) waitedFor(answer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vain++
	if s.waited = time.Now(); answer {
		s.vain = 0
	}
}

// mayAnswer reports whether a query should wait longer for the server than usual. If some have done so in vain, the
// next one does it ten seconds later.
func (s *server) mayAnswer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vain < 3 || time.Since(s.waited) > 10*time.Second
}

func (s *server) close() error {
	s.end()
	s.mu.Lock()
	s.closed = true
	d, m := s.dial, s.member
	s.member = nil
	s.mu.Unlock()
	if d != nil {
		<-d.done
	}
	if m == nil {
		return nil
	}
	return m.Close()
}

// member is a session at one server: a *redislock.MemberSession, except in the model test.
type member interface {
	Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error)
	Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error
	Raise(ctx context.Context, h driver.Hold, token uint64, lease time.Duration) (uint64, time.Duration, error)
	Keep(ctx context.Context, h driver.Hold, upTo uint64, left time.Duration) error
	Move(ctx context.Context, name, id string, place uint64) error
	Claim(ctx context.Context, name, id string, rank int, token uint64) error
	Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (<-chan uint64, uint64, error)
	Cancel(ctx context.Context, name, id string) error
	Withdraw(ctx context.Context, name, id string, limit uint64) (uint64, error)
	Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error)
	Downgrade(ctx context.Context, h driver.Hold) error
	AdoptMinimum(ctx context.Context, h driver.Hold, id, info string) (time.Duration, error)
	Close(ctx context.Context) error
}

// endpoint is a session's state at one server.
type endpoint struct {
	*server
	index  int
	clocks *clocks
	here   atomic.Pointer[member]
	slow   atomic.Int64   // since when the server owes an answer, by the session's clock; 0: it answers
	out    atomic.Int32   // exchanges under way
	busy   sync.WaitGroup // the same, and those that are about to begin
	until  atomic.Int64   // in quarantine: do not ask before this time, in microseconds of the session's clock
	votes  atomic.Int64   // when the quarantine ends, as the server said last, by the same clock
	keeps  atomic.Int32   // names that it shall keep, each waiting for its next try

	mu             sync.Mutex
	err            error                    // why there is no session here
	pendingCancels map[string]pendingCancel // cancellations that the server may not have received
	cancelling     bool                     // a goroutine sends them
	pending        chan struct{}            // gets a value when they change
}

const (
	stuckMost = 8    // exchanges under way with a server that has not answered for stuckAfter; no more are sent
	mostKeeps = 1024 // names that a silent or busy server shall keep; the others only the majority keeps
)

// at returns the session at this server, or nil if there is none.
func (p *endpoint) at() member {
	if m := p.here.Load(); m != nil {
		return *m
	}
	return nil
}

// fails notes why there is no session here; nil if there is one.
func (p *endpoint) fails(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// isJoining reports whether the first try to join the server has not ended.
func (p *endpoint) isJoining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err == nil && p.at() == nil
}

// stuckAfter is in microseconds. A server that is merely busy gives some answer in that time.
const stuckAfter = 500_000

// stuck reports whether no more exchanges should be sent.
func (p *endpoint) stuck(now int64) bool {
	since := p.slow.Load()
	return since != 0 && now-since > stuckAfter && p.out.Load() >= stuckMost
}

// slows records that an answer of the server is late.
func (p *endpoint) slows(now int64) { p.slow.CompareAndSwap(0, max(now, 1)) }

// errJoining: the first try to join the server has not ended.
var errJoining = fmt.Errorf("%w: not connected", driver.ErrUnavailable)

// session returns the session at this server, or why it cannot be used now.
func (p *endpoint) session(now int64) (member, error) {
	s := p.at()
	switch {
	case s == nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err != nil {
			return nil, p.err
		}
		return nil, ofServer(p.Name, errJoining)
	case p.stuck(now):
		return nil, ofServer(p.Name, fmt.Errorf("%w: it does not answer", driver.ErrUnavailable))
	case p.until.Load() > now:
		return nil, ofServer(p.Name, &redislock.Newborn{Left: time.Duration(p.votes.Load()-now) * time.Microsecond})
	}
	if err := p.clocks.check(p.index); err != nil {
		return nil, err
	}
	return s, nil
}

// do makes one exchange, and records the state of the server.
func (p *endpoint) do(now int64, f func(member) error) error {
	s, err := p.session(now)
	if err != nil {
		return err
	}
	p.out.Add(1)
	err = f(s)
	p.out.Add(-1)
	var quarantined *redislock.Newborn
	var set *moved
	switch {
	case err == nil || driver.IsFinal(err) || driver.IsOver(err) || errors.As(err, &set):
		p.slow.Store(0)
	case errors.As(err, &quarantined):
		p.slow.Store(0)
		p.votes.Store(now + quarantined.Left.Microseconds())
		// Not much longer than necessary, because another client may declare the quorum new.
		p.until.Store(now + min(quarantined.Left, 200*time.Millisecond).Microseconds())
	case errors.Is(err, driver.ErrUncertain), errors.Is(err, driver.ErrUnavailable):
		p.slows(now)
	}
	if driver.IsOver(err) {
		return err
	}
	return ofServer(p.Name, err)
}

// tries reports whether one more name may wait for its next try, and counts it.
func (p *endpoint) tries() bool {
	if p.keeps.Add(1) <= mostKeeps {
		return true
	}
	p.keeps.Add(-1)
	return false
}

// lone reports whether err is final at one server, but says nothing about the others.
func lone(err error) bool {
	return errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrDamaged)
}

// undelivered reports whether a request that failed with err must be repeated: the server did not
// receive it, or refuses now and may accept it later.
func undelivered(err error) bool {
	return err != nil && !driver.IsOver(err) && (!driver.IsFinal(err) || errors.Is(err, driver.ErrRefused))
}
