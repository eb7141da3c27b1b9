package holdfast

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/asleep"
)

// DefaultTTL is how long a silent client's locks last unless Config says otherwise.
const DefaultTTL = 15 * time.Second

// Config adjusts a client. The zero value, or nil, is ready to use.
type Config struct {
	// TTL: after this long without a sign of life from the client, the store may give its
	// locks to others. Renewals go out every third of it. From 100 ms to 24 h; default 15 s.
	// A long TTL rides out long pauses and outages; a short one frees a dead holder's locks
	// soon.
	TTL time.Duration

	// Margin: the client stops trusting a lease this long before the store may give it
	// away, to allow for clocks that run at different speeds. At most TTL/2; default TTL/10.
	Margin time.Duration

	// Program names this program to operators and waiters; default: the executable's name.
	Program string

	// Labels are shown to operators and waiters with everything that this client holds.
	Labels map[string]string

	// Logger gets a warning for each lost lease, and for an outage of the store: one when the
	// first renewal fails, then one a minute (a TTL, if that is longer), and one when it is
	// over. It is called from a goroutine of its own. What it is too slow for is dropped, and
	// counted in the next line. Default: none.
	Logger *slog.Logger

	// Observer is told what happens; see there.
	Observer *Observer
}

// Client holds and waits for locks at one store, under one session that renews itself
// until Close. It is safe for concurrent use; a program needs one for each store.
type Client struct {
	backend  driver.Backend
	want     time.Duration // the TTL to ask for
	margin   time.Duration // 0: a tenth of the TTL
	self     driver.Info
	info     string // self, encoded
	log      *slog.Logger
	observer *Observer
	start    time.Time
	asleep   func() time.Duration // how long the machine has slept: asleep.Total, but for tests
	asleep0  time.Duration
	slept    atomic.Int64 // asleep - asleep0, as last read
	bounds   bounds

	session  atomic.Pointer[session]
	requests *requestIDs

	look   chan struct{}   // wakes the watcher before its time
	due    chan struct{}   // wakes the renewer before its time
	work   gate            // what Close waits for
	alive  context.Context // ends when Close begins
	shut   context.CancelFunc
	life   context.Context // ends when Close has waited for all work, or gives up waiting
	kill   context.CancelFunc
	chores chores  // exchanges that are repeated in the background
	logs   teller  // calls the Logger
	events teller  // calls the Observer for what no caller waits for
	outage trouble // what the log has been told of an outage

	mu      sync.Mutex // never held across anything that may block
	closed  bool
	leases  leaseHeap
	waits   map[*wait]struct{}
	offers  map[*Lease]*offer
	wakeAt  time.Duration // when the watcher looks next
	looking bool          // it looks at least once a second, because a lease is held
	renewAt time.Duration // when the next renewal is due
	asking  time.Duration // when the renewal under way was sent; 0: there is none
	missed  error         // why the last renewal failed; nil: it did not
}

// made returns an error for a client that New has not made.
func (c *Client) made() error {
	if c == nil || c.backend == nil {
		return fmt.Errorf("%w client: New has not made it", ErrInvalid)
	}
	return nil
}

// session is a driver's session, its name, and what the store granted; a client has one at a
// time.
type session struct {
	driver.Session
	id          string
	ttl, margin time.Duration
	lost        <-chan struct{} // closed by the driver when the session is over
}

// trust is for how long what an exchange has proven can be relied on.
func (s *session) trust() time.Duration { return s.ttl - s.margin }

// over reports whether the store has ended the session. A session stays the client's until
// another is open, so whatever makes a lease has to look here, with c.mu held: either it sees
// that the session is over, or endSession sees the lease.
func (s *session) over() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// New opens a session at the store and keeps it alive. ctx bounds only the opening. The
// backend stays the caller's: close it after the client. Errors: ErrInvalid,
// ErrUnavailable, ErrRefused.
func New(ctx context.Context, backend driver.Backend, cfg *Config) (*Client, error) {
	return newClient(ctx, backend, cfg, asleep.Total)
}

func newClient(ctx context.Context, backend driver.Backend, cfg *Config, slept func() time.Duration) (*Client, error) {
	if backend == nil {
		return nil, fmt.Errorf("holdfast: %w: the backend is nil; a store's package makes one", ErrInvalid)
	}
	if cfg == nil {
		cfg = &Config{}
	}
	ttl, margin := cfg.TTL, cfg.Margin
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		return nil, fmt.Errorf("holdfast: %w TTL %v: allowed are %v to %v", ErrInvalid, ttl, driver.MinTTL, driver.MaxTTL)
	}
	if margin < 0 || margin > ttl/2 {
		return nil, fmt.Errorf("holdfast: %w margin %v: allowed are 0 (for a tenth of the TTL) to half of the TTL, %v", ErrInvalid, margin, ttl/2)
	}
	c := &Client{
		backend: backend, want: ttl, margin: margin, self: self(cfg), log: cfg.Logger, observer: cfg.Observer,
		start: time.Now(), asleep: slept, asleep0: slept(),
		look: make(chan struct{}, 1), due: make(chan struct{}, 1), waits: map[*wait]struct{}{}, offers: map[*Lease]*offer{},
		work: gate{idle: make(chan struct{})}, requests: newRequestIDs(),
	}
	c.info = c.self.String()
	if len(c.info) > driver.MaxInfo/2 {
		return nil, fmt.Errorf("holdfast: %w labels: %d bytes encoded; allowed are %d", ErrInvalid, len(c.info), driver.MaxInfo/2)
	}
	if err := c.openSession(ctx); err != nil {
		return nil, fmt.Errorf("holdfast: open %s: %w", backend.Name(), err)
	}
	c.life, c.kill = context.WithCancel(context.Background())
	c.alive, c.shut = context.WithCancel(c.life)
	c.renewAt = c.now() + c.TTL()/3
	c.work.add()
	go func() { defer c.work.leave(); c.watch() }()
	c.work.add()
	go func() { defer c.work.leave(); c.keep() }()
	return c, nil
}

// openSession starts a session with a fresh identity.
func (c *Client) openSession(ctx context.Context) error {
	id := strings.ToLower(rand.Text())
	limit := max(exchangeLimit, c.want)
	bctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := c.backend.Open(bctx, driver.SessionConfig{ID: id, TTL: c.want, Info: c.info})
	switch {
	case err == nil:
	case bctx.Err() != nil && ctx.Err() == nil && !final(err):
		return fmt.Errorf("no answer within %v: %w", round(limit), outage(driver.NotCallers(err)))
	default:
		return explain(ctx, err)
	}
	ttl, margin := s.TTL(), c.margin
	if margin == 0 || margin > ttl/2 {
		margin = ttl / 10
	}
	c.session.Store(&session{s, id, ttl, margin, s.Lost()})
	return nil
}

// Close ends every wait with ErrClosed, releases every lease, and ends the session. ctx
// bounds it; what the store did not hear by then runs out by itself within a TTL. At a store that
// does not answer Close takes a TTL if ctx has no deadline: nothing is left to release by then. A
// Logger or Observer that blocks is not waited for longer than a second.
func (c *Client) Close(ctx context.Context) error {
	if err := c.made(); err != nil {
		return fmt.Errorf("holdfast: close: %w", err)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	leases, offers := c.leases.own(), slices.Collect(maps.Keys(c.offers))
	c.mu.Unlock()
	c.shut()
	caller, ttl := ctx, c.TTL()
	last, cancel := context.WithTimeout(caller, ttl) // from now on nothing is renewed
	defer cancel()
	ctx, cancel = context.WithTimeout(caller, ttl-ttl/10) // the end of the session may free at once what is left then
	defer cancel()
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()

	// All end here before the store is asked about any: from now on nobody renews them.
	leases = slices.DeleteFunc(leases, func(l *Lease) bool {
		return c.end(l, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased}) != nil
	})
	const atOnce = 32
	slots := make(chan struct{}, atOnce)
	var released sync.WaitGroup
	each := func(list []*Lease, f func(*Lease)) {
		for _, l := range list {
			slots <- struct{}{}
			released.Go(func() { defer func() { <-slots }(); f(l) })
		}
	}
	each(leases, func(l *Lease) {
		err := l.giveBack(ctx)
		c.events.tell(func() { c.observer.released(l, err) })
	})
	each(offers, func(l *Lease) { _ = l.takeBack(ctx) }) // else it runs out
	released.Wait()
	c.work.close()
	select {
	case <-c.work.idle:
	case <-ctx.Done():
	}
	c.kill()
	err := c.session.Load().Close(last)
	c.logs.flush(caller)
	c.events.flush(caller)
	switch {
	case err == nil:
		return nil
	case last.Err() != nil && caller.Err() == nil:
		return fmt.Errorf("holdfast: close: %w: the store has not answered within %v; what it still keeps for this client runs out by itself", ErrUncertain, round(ttl))
	}
	return fmt.Errorf("holdfast: close: %w", explain(caller, err))
}

// TTL is how long the store keeps the locks of this client after its last sign of life, at
// least, as the store granted it to the session of now: it may differ from what was asked.
func (c *Client) TTL() time.Duration {
	if err := c.made(); err != nil {
		panic("holdfast: TTL: " + err.Error())
	}
	return c.session.Load().ttl
}

// now is the time since the client was opened, including what the machine has slept. All
// trust is reckoned on this clock.
func (c *Client) now() time.Duration {
	slept := c.asleep() - c.asleep0
	c.slept.Store(int64(slept))
	return time.Since(c.start) + slept
}

// soonest is now without asking the system how long the machine has slept, which would be
// the dearest part of an uncontended lock. It is behind by a sleep that nobody has
// noticed yet, which takes at most a second: what is reckoned from it ends early.
func (c *Client) soonest() time.Duration {
	return time.Since(c.start) + time.Duration(c.slept.Load())
}

// self is what this client tells others of itself.
func self(cfg *Config) driver.Info {
	i := driver.Info{PID: os.Getpid(), Program: cfg.Program, Labels: cfg.Labels}
	i.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		i.User = u.Username
	}
	if i.Program == "" {
		i.Program = filepath.Base(os.Args[0])
	}
	return i
}
