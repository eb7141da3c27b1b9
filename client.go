package holdfast

import (
	"cmp"
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

// DefaultTTL is the lease duration that a client asks for unless Config says otherwise.
const DefaultTTL = 15 * time.Second

// Client holds leases and waits for locks at one store, under one session that it renews until
// Close. It is safe for concurrent use; a program needs one for each store.
type Client struct {
	backend   driver.Backend
	store     driver.Backend // backend, with exchanges reported to the Observer
	wantedTTL time.Duration  // the TTL to ask for
	margin    time.Duration  // 0: a tenth of the TTL
	self      driver.Info
	info      string // self, encoded
	log       *slog.Logger
	observer  *Observer
	profiles  Profiles
	start     time.Time
	asleep    func() time.Duration // how long the machine has slept: asleep.Total, except in tests
	asleep0   time.Duration
	slept     atomic.Int64         // asleep - asleep0, as last read
	boot      func() time.Duration // a clock that goes on while the machine sleeps: asleep.Now, except in tests
	boot0     time.Duration        // its reading at start, or just before
	awakeFor  time.Duration        // awakeFor; 0 in tests, where no wall clock shows a sleep
	bounds    bounds

	session   atomic.Pointer[session]
	requests  *requestIDs
	abandoned abandoned

	wakeWatcher   chan struct{}   // buffer of 1
	wakeKeeper    chan struct{}   // buffer of 1
	doubts        doubts          // names whose grants the keeper checks
	work          workCount       // the calls and goroutines that Close waits for
	openCtx       context.Context // ends when Close begins
	beginClose    context.CancelFunc
	workCtx       context.Context // ends when Close has waited for all work, or stops waiting
	cancelWork    context.CancelFunc
	tasks         taskQueue   // exchanges that are repeated in the background
	logCalls      callQueue   // calls the Logger
	observerCalls callQueue   // calls the Observer for events without a caller
	exchangeCalls callQueue   // calls the Observer for exchanges, which are many
	outage        outageState // what the log has about an outage
	history       historian
	passes        int           // the most in a row; 0: none
	passFor       time.Duration // after a grant
	sticking      atomic.Int32  // the cohorts in stickies
	reading       atomic.Bool   // requests to holders are being read
	explaining    chan struct{} // has a value for each loss that the store is asked about

	mu          sync.Mutex // never held across anything that may block
	closed      bool
	leases      leaseHeap
	waits       map[*wait]struct{}
	attempts    map[*attempt]struct{} // the calls that wait
	offers      map[*Lease]*offer
	cohorts     map[cohortKey]*cohort
	idleCohorts []*cohort
	stickies    map[string][]*cohort // those of Sticky, by name
	readers     map[string][]*cohort // those of readers, by name
	fulls       int                  // how often keepFull has kept a cohort since it dropped some
	awake       awake
	wakeAt      time.Duration // when the watcher looks next
	looking     bool          // the watcher looks at least once a second, because there is a lease
	renewAt     time.Duration // when the next renewal is due
	renewalSent time.Duration // when the renewal under way was sent; 0: none is
	renewalErr  error         // of the last renewal; nil: it succeeded
	answered    time.Duration // when the last exchange about a lock was sent that was answered
}

// usable returns an error for a client that New has not made.
func (c *Client) usable() error {
	if c == nil || c.backend == nil {
		return fmt.Errorf("%w client: New has not made it", ErrInvalid)
	}
	return nil
}

// session is a driver's session, its ID, and what the store granted. A client has one at a time.
type session struct {
	driver.Session
	id          string
	ttl, margin time.Duration
	lost        <-chan struct{} // closed by the driver when the session is over
}

// trust returns for how long the proof of an exchange can be relied on, if it makes the lease as
// long as length. The margin of a shorter lease is smaller in proportion: it is there because clocks
// may run at different speeds.
func (s *session) trust(length time.Duration) time.Duration {
	if length >= s.ttl {
		return s.ttl - s.margin
	}
	return length - time.Duration(float64(length)*float64(s.margin)/float64(s.ttl))
}

// leaseFor returns how long the store must keep a lease so that it can be trusted for d, or 0 if
// that is not less than the TTL.
func (s *session) leaseFor(d time.Duration) time.Duration {
	length := time.Duration(float64(d)*float64(s.ttl)/float64(s.trust(s.ttl))) + time.Millisecond // rounded up
	if length = max(length, shortestLease); length >= s.ttl {
		return 0
	}
	return length.Truncate(time.Microsecond) // stores may drop the rest
}

// shortestLease bounds how often the place of a waiter with a short lease is renewed.
const shortestLease = time.Second

// over reports whether the store has ended the session. The client keeps a session until another is
// open. So the code that makes a lease has to look here, with c.mu held: either it sees that the
// session is over, or endSession sees the lease.
func (s *session) over() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// New opens a session at the store and renews it until Close. ctx bounds only the opening. The
// caller closes the backend, after the client. Errors: ErrInvalid, ErrUnavailable, ErrRefused.
func New(ctx context.Context, backend driver.Backend, cfg *Config) (*Client, error) {
	return newClient(ctx, backend, cfg, nil)
}

func newClient(ctx context.Context, backend driver.Backend, cfg *Config, slept func() time.Duration) (*Client, error) {
	if backend == nil {
		return nil, fmt.Errorf("holdfast: %w: the backend is nil; the package of a store makes one", ErrInvalid)
	}
	if cfg == nil {
		cfg = &Config{}
	}
	ttl, margin := cmp.Or(cfg.TTL, DefaultTTL), cfg.Margin
	if err := cfg.check(ttl); err != nil {
		return nil, fmt.Errorf("holdfast: %w", err)
	}
	boot, boot0, sure := asleep.Now, asleep.Now(), awakeFor
	start := time.Now()
	if slept == nil {
		slept = asleep.Total
	} else {
		boot, boot0, sure = func() time.Duration { return time.Since(start) + slept() }, slept(), 0
	}
	c := &Client{
		backend: backend, wantedTTL: ttl, margin: margin, self: self(cfg), log: cfg.Logger, observer: cfg.Observer,
		profiles: cfg.Profiles, start: start, asleep: slept, asleep0: slept(), boot: boot, boot0: boot0, awakeFor: sure,
		wakeWatcher: make(chan struct{}, 1), wakeKeeper: make(chan struct{}, 1),
		doubts: doubts{wake: make(chan struct{}, 1)}, waits: map[*wait]struct{}{},
		attempts: map[*attempt]struct{}{},
		offers:   map[*Lease]*offer{}, cohorts: map[cohortKey]*cohort{}, stickies: map[string][]*cohort{},
		readers: map[string][]*cohort{},
		work:    workCount{idle: make(chan struct{})}, requests: newRequestIDs(),
		explaining: make(chan struct{}, maxExplaining),
	}
	c.history.c, c.history.keep = c, cfg.History
	if err := c.setPasses(cfg); err != nil {
		return nil, fmt.Errorf("holdfast: %w", err)
	}
	c.observeExchanges()
	c.info = c.self.String()
	if len(c.info) > driver.MaxInfo/2 {
		return nil, fmt.Errorf("holdfast: %w labels and command line: %d bytes encoded; allowed are %d", ErrInvalid,
			len(c.info), driver.MaxInfo/2)
	}
	if err := c.openSession(ctx); err != nil {
		return nil, fmt.Errorf("holdfast: open %s: %w", backend.Name(), err)
	}
	c.self.LeaseMS = c.TTL().Milliseconds() // which the store has granted
	c.info = c.self.String()
	c.workCtx, c.cancelWork = context.WithCancel(context.Background())
	c.openCtx, c.beginClose = context.WithCancel(c.workCtx)
	c.renewAt = c.now() + c.TTL()/3
	c.work.add()
	go func() { defer c.work.done(); c.watch() }()
	c.work.add()
	go func() { defer c.work.done(); c.keep() }()
	if o := c.observer; o != nil && o.Opened != nil {
		c.observerCalls.addEnd(func() { o.Opened(c) })
	}
	return c, nil
}

// openSession opens a session with a fresh ID.
func (c *Client) openSession(ctx context.Context) error {
	id, sent := strings.ToLower(rand.Text()), c.coarseNow()
	limit := max(exchangeLimit, c.wantedTTL)
	bctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := c.store.Open(bctx, driver.SessionConfig{ID: id, TTL: c.wantedTTL, Info: c.info, Doubt: c.doubts.add,
		Wanted: c.calledBack})
	switch {
	case err == nil:
	case bctx.Err() != nil && ctx.Err() == nil && !final(err):
		return fmt.Errorf("no answer within %v: %w", round(limit), asOutage(driver.NotCallers(err)))
	default:
		return explain(ctx, err)
	}
	ttl, margin := s.TTL(), c.margin
	if margin == 0 || margin > ttl/2 {
		margin = ttl / 10
	}
	c.session.Store(&session{s, id, ttl, margin, s.Lost()})
	c.noteAnswered(sent)
	return nil
}

// Close ends every wait with ErrClosed, releases every lease, and ends the session. ctx bounds it;
// leases whose release the store has not received by then expire within a TTL. At a store that does
// not answer, Close takes a TTL if ctx has no deadline: every lease has expired by then. Close
// waits at most a second for a Logger or Observer that blocks.
func (c *Client) Close(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return fmt.Errorf("holdfast: close: %w", err)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	leases, offers := c.leases.own(), slices.Collect(maps.Keys(c.offers))
	c.stopIdleTimers()
	c.mu.Unlock()
	c.beginClose()
	caller, ttl := ctx, c.TTL()
	last, cancel := context.WithTimeout(caller, ttl) // nothing is renewed from now on
	defer cancel()
	end, _ := last.Deadline()
	left := time.Until(end)
	ctx, cancel = context.WithTimeout(caller, left-left/10) // leaves time to end the session
	defer cancel()
	stop := context.AfterFunc(ctx, c.cancelWork)
	defer stop()

	// End all leases before the first exchange with the store: from now on nobody renews them.
	ended := time.Now()
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
		err := l.releaseAtStore(ctx, ended)
		for _, x := range l.takeReaders() {
			c.observerCalls.addEnd(func() { c.observer.reportReleased(x, err) })
		}
		c.observerCalls.addEnd(func() { c.observer.reportReleased(l, err) })
	})
	each(offers, func(l *Lease) { _ = l.releaseOffer(ctx) }) // an offer that was not released expires
	released.Wait()
	c.work.close()
	select {
	case <-c.work.idle:
	case <-ctx.Done():
	}
	c.cancelWork()
	err := c.session.Load().Close(last)
	if o := c.observer; o != nil && o.Closed != nil {
		c.observerCalls.addEnd(func() { o.Closed(c) })
	}
	flushing, cancel := context.WithTimeout(caller, time.Second)
	defer cancel()
	c.logCalls.flush(flushing)
	c.observerCalls.flush(flushing)
	c.exchangeCalls.flush(flushing)
	switch {
	case err == nil:
		return nil
	case last.Err() != nil && caller.Err() == nil:
		return fmt.Errorf(
			"holdfast: close: %w: the store has not answered within %v; what it still keeps for this client expires",
			ErrUncertain, round(ttl))
	}
	return fmt.Errorf("holdfast: close: %w", explain(caller, err))
}

// TTL returns the lease duration that the store granted to the current session. It may differ from
// Config.TTL.
func (c *Client) TTL() time.Duration {
	if err := c.usable(); err != nil {
		panic("holdfast: TTL: " + err.Error())
	}
	return c.session.Load().ttl
}

// now returns the time since the client was opened, including the time that the machine slept. All
// deadlines of leases are on this clock.
func (c *Client) now() time.Duration {
	slept := c.asleep() - c.asleep0
	c.slept.Store(int64(slept))
	return time.Since(c.start) + slept
}

// coarseNow is now without the system call for the time that the machine slept, which would be the
// largest cost of an uncontended lock. It does not include a sleep that the watcher has not noticed
// yet, for at most a second. Deadlines that are computed from it are early.
func (c *Client) coarseNow() time.Duration {
	return time.Since(c.start) + time.Duration(c.slept.Load())
}

// self returns what this client tells the store about itself.
func self(cfg *Config) driver.Info {
	i := driver.Info{PID: os.Getpid(), Program: cfg.Program, Labels: cfg.Labels, Command: cfg.Command}
	i.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		i.User = u.Username
	}
	if i.Program == "" {
		i.Program = filepath.Base(os.Args[0])
	}
	return i
}
