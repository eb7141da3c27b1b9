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
// A call made while no server is connected waits for a connection. The servers carry out calls in
// the order in which they were made, and many may be in flight at once. If the connection breaks,
// its requests in flight fail at once with ErrConnectionLoss: they are never sent again. Errors of
// a session that is over satisfy ErrSessionExpired, ErrAuthFailed or ErrClosed, and ErrNotSent or
// ErrConnectionLoss.
type Session struct {
	cfg      Config
	ctx      context.Context // ends with the session
	cancel   context.CancelFunc
	lost     chan struct{}
	finished chan struct{} // the session's goroutines have ended, except that of callbacks
	wake     chan struct{} // the queue has calls
	expiry   *time.Timer   // set once connected; fires at the deadline or earlier
	events   eventQueue
	known    map[string][]string // addresses of names; only the connecting goroutine uses it
	slept    func() time.Duration

	mu       sync.Mutex
	cause    error // why the session is over
	closing  bool  // Close was called
	id       int64
	password []byte
	timeout  time.Duration
	proof    proof
	lastZxid int64     // of the last answer
	asked    time.Time // when the leader last got a request
	conn     *conn
	queue    []*call // not sent yet
	watches  watches
	tree     func(path string) // see WatchTree
	old      bool              // the servers are older than 3.5
}

// Dial starts a session, and returns when a server has accepted the session and Config.Auth. It
// tries until ctx ends; its error then contains the last failure. ErrAuthFailed ends it at once. It
// also gives up when nothing has listened for a second: each server refused the connection, or its
// name is unknown.
func Dial(ctx context.Context, cfg Config) (*Session, error) {
	cfg, err := cfg.normalize()
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg: cfg, lost: make(chan struct{}), finished: make(chan struct{}), wake: make(chan struct{}, 1),
		timeout: cfg.Timeout, password: make([]byte, 16), watches: newWatches(), known: map[string][]string{},
		slept: cfg.slept, old: cfg.Old,
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
		last := attempts.get() // now: the end of the session makes the attempt under way fail as well
		s.end(ErrClosed)       // if a server has the session already, it expires there
		return nil, &opError{"connect to", cfg.Servers[0], joined(context.Cause(ctx), last)}
	}
}

// ID returns the session's number, which is the EphemeralOwner of its nodes.
func (s *Session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Password returns the secret that, with ID, allows to join the session.
func (s *Session) Password() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.password)
}

// Timeout returns the session timeout that the servers granted. It may change when the session
// moves to a server with other settings.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// Left returns for how long from now the servers keep the session at least, whatever happens to
// this program and its network. Time that the machine sleeps counts. Left is never more than
// Timeout, and in normal operation between 3/5 and 3/4 of Timeout. Not positive: the session may be
// over.
func (s *Session) Left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left()
}

// left is Left, for callers that hold the mutex.
func (s *Session) left() time.Duration { return s.timeout - s.now().Sub(s.proof.at) }

// now returns the time on a clock that also runs while the machine sleeps.
func (s *Session) now() time.Time { return time.Now().Add(s.slept()) }

// Lost returns a channel that is closed when the session is over: the servers reported it, Left has
// reached zero, authentication failed, or Close was called.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err returns why the session is over: ErrSessionExpired, ErrAuthFailed, ErrClosed; else nil.
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

// Close ends the session at the servers, and with it its ephemeral nodes, after the calls made
// before. If ctx ends first, the session ends only on this side (the error says so), and expires at
// the servers. Close may be called more than once, but not by a callback of a watch.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing && s.cause == nil
	var c *call
	if first {
		c = newCall(opCloseSession, 0)
		s.submit(c)
		s.wakeWriter()
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

// end ends the session. Only the first cause counts.
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

// checkDeadline runs when the session may have expired at the servers.
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
		s.keepAlive(c)
		c.wg.Wait()
	}
}

// keepAlive pings the servers through c until c breaks, and gives up c if it hangs. The interval
// suits proof, which needs two pings: the older is as old as δ plus their distance.
func (s *Session) keepAlive(c *conn) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	silent := silence{seen: time.Now()}
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
			s.wakeWriter()
			s.asked = now
		}
		wait := s.asked.Add(interval).Sub(now)
		if len(c.inflight) > 0 {
			since := c.lastRead
			if sent := c.inflight[0].sentAt; sent.After(since) {
				since = sent
			}
			left := patience - silent.after(since, now, interval)
			if left <= 0 {
				s.drop(c, errHung)
			}
			wait = min(wait, left)
		}
		silent.seen = now
		s.mu.Unlock()
		timer.Reset(max(wait, 0))
	}
}

// silence counts for how long a server has been silent while this program ran. After a standstill of
// the program or of the machine, the answer may be there and not be read yet. So a longer time between
// two looks counts as one interval.
type silence struct {
	since  time.Time // the server's last sign, or when the request was sent
	seen   time.Time // the last look
	length time.Duration
}

// after returns the length of the silence since then. The looks are an interval apart, or less.
func (q *silence) after(since, now time.Time, interval time.Duration) time.Duration {
	step := min(now.Sub(q.seen), interval)
	if !since.Equal(q.since) {
		q.since, q.length = since, 0
		step = min(step, now.Sub(since))
	}
	q.length += step
	return q.length
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
