package zk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/asleep"
)

// Session is one ZooKeeper session. Its methods may be called concurrently.
//
// A call made while no server is connected waits for one. Calls are carried out in the
// order in which they were made, and many may be under way at once. A request that was
// under way on a connection that broke fails at once with ErrConnectionLoss: it is never
// sent again. Errors of a session that is over satisfy ErrSessionExpired, ErrAuthFailed
// or ErrClosed, and ErrNotSent or ErrConnectionLoss.
type Session struct {
	cfg      Config
	ctx      context.Context // ends with the session
	cancel   context.CancelFunc
	lost     chan struct{}
	finished chan struct{} // the session's goroutines have ended, that of callbacks excepted
	kick     chan struct{} // there is something in queue
	expiry   *time.Timer   // set once connected; fires at the deadline or earlier
	events   eventQueue
	known    map[string][]string // addresses of names; the connecting goroutine's own
	slept    func() time.Duration

	mu       sync.Mutex
	cause    error // why the session is over
	closing  bool  // Close was called
	id       int64
	password []byte
	timeout  time.Duration
	proof    proof
	lastZxid int64     // of the last answer
	asked    time.Time // when the leader was last asked for something
	conn     *conn
	queue    []*call // not sent yet
	watches  watches
	old      bool // the servers are older than 3.5
}

// Dial starts a session, and returns when a server has it and has accepted Config.Auth. It
// tries until ctx ends; then its error tells what happened last. ErrAuthFailed ends it at once, and
// that no server has been there for a second: each refused the connection, or its name is unknown.
func Dial(ctx context.Context, cfg Config) (*Session, error) {
	cfg, err := cfg.normalize()
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg: cfg, lost: make(chan struct{}), finished: make(chan struct{}), kick: make(chan struct{}, 1),
		timeout: cfg.Timeout, password: make([]byte, 16), watches: newWatches(), known: map[string][]string{}, slept: cfg.slept, old: cfg.Old,
	}
	if s.slept == nil {
		s.slept = asleep.Total
	}
	s.events.kick = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := make(chan struct{})
	attempts := &lastError{}
	go s.run(first, attempts)
	go s.events.run(s.lost)
	select {
	case <-first:
		return s, nil
	case <-s.lost:
		return nil, &opError{"connect to", cfg.Servers[0], s.Err()}
	case <-ctx.Done():
		s.end(ErrClosed) // a server that has it already lets it run out
		return nil, &opError{"connect to", cfg.Servers[0], joined(context.Cause(ctx), attempts.get())}
	}
}

// ID is the session's number, which nodes that live with it have as their EphemeralOwner.
func (s *Session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Password is what, with ID, allows to join the session.
func (s *Session) Password() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.password)
}

// Timeout is the session timeout that the servers granted. It may change when the session
// moves to a server with other settings.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// Left is for how long from now the servers keep the session at least, whatever happens to
// this program and its network; what the machine has slept counts. It is never more than
// Timeout and while all is well between 3/5 and 3/4 of that. Not positive: it may be over.
func (s *Session) Left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left()
}

// left is Left with the mutex held.
func (s *Session) left() time.Duration { return s.timeout - s.now().Sub(s.proof.at) }

// now is a time on whose scale the machine does not stop when it sleeps.
func (s *Session) now() time.Time { return time.Now().Add(s.slept()) }

// Lost is closed when the session is over: the servers said so, Timeout has passed since
// Proof, authentication failed, or Close was called.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err is why the session is over: ErrSessionExpired, ErrAuthFailed, ErrClosed; else nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// Connected reports whether a server is connected.
func (s *Session) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// Close ends the session at the servers, and with it its ephemeral nodes, after the calls
// made before. If ctx ends first, it ends on this side only (the error says so), and runs out at
// the servers. It may be called more than once, but not by a callback of a watch.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing && s.cause == nil
	var c *call
	if first {
		c = newCall(opCloseSession, 0)
		s.submit(c)
		s.urge()
		s.closing = true
	}
	s.mu.Unlock()
	var err error
	if first {
		if _, err = s.wait(ctx, c); err != nil {
			err = &opError{"close the session at", s.cfg.Servers[0], err}
		}
		s.end(ErrClosed)
	}
	select {
	case <-s.finished:
	case <-ctx.Done():
	}
	return err
}

// end makes the session be over. Only the first cause counts.
func (s *Session) end(cause error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause = cause
	s.cancel()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.drop(s.conn, cause)
	for _, c := range s.queue {
		c.finish(notSent(cause))
	}
	s.queue = nil
	s.events.put(s.watches.all(EventSessionLost)...)
	s.watches = newWatches()
	close(s.lost)
	s.mu.Unlock()
}

// checkDeadline runs when the session may have run out at the servers.
func (s *Session) checkDeadline() {
	s.mu.Lock()
	left := s.left()
	if left > 0 && s.cause == nil {
		s.expiry.Reset(left)
	}
	s.mu.Unlock()
	if left <= 0 {
		s.end(ErrSessionExpired)
	}
}

// run keeps the session connected.
func (s *Session) run(first chan struct{}, attempts *lastError) {
	defer close(s.finished)
	for {
		c, err := s.connect(attempts)
		if err != nil {
			s.end(err)
			return
		}
		if first != nil {
			close(first)
			first = nil
		}
		s.tend(c)
		c.wg.Wait()
	}
}

// tend pings the servers through c until it breaks, and gives c up if it hangs. It pings so
// often for the sake of proof: the older of the two pings that it takes is as old as δ and
// their distance.
func (s *Session) tend(c *conn) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.dead:
			return
		case <-timer.C:
		}
		s.mu.Lock()
		now := time.Now()
		interval, patience := s.timeout/16, s.timeout/4
		if now.Sub(s.asked) >= interval && s.cause == nil {
			s.submit(syncCall("/"))
			s.urge()
			s.asked = now
		}
		wait := s.asked.Add(interval).Sub(now)
		if len(c.inflight) > 0 {
			since := c.heard
			if sent := c.inflight[0].sentAt; sent.After(since) {
				since = sent
			}
			left := since.Add(patience).Sub(now)
			if left <= 0 {
				s.drop(c, errHung)
			}
			wait = min(wait, left)
		}
		s.mu.Unlock()
		timer.Reset(max(wait, 0))
	}
}

var errHung = errors.New("the server does not answer")

// lastError keeps the latest error.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
