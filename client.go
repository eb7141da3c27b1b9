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
	"strconv"
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
	// away, to allow for clocks that run at different speeds. Default TTL/10.
	Margin time.Duration

	// Program names this program to operators and waiters; default: the executable's name.
	Program string

	// Labels are shown to operators and waiters with everything that this client holds.
	Labels map[string]string

	// Logger gets a warning for each lost lease and each failed renewal. Default: none.
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
	requests atomic.Uint64

	kick    chan struct{} // wakes the keeper before its time
	closing chan struct{}
	ends    sync.WaitGroup  // the keeper, slow acquires, and what is finished in the background
	life    context.Context // ends when Close gives up waiting for those
	kill    context.CancelFunc

	mu      sync.Mutex
	closed  bool
	leases  leaseHeap
	waits   map[*wait]struct{}
	offers  map[*Lease]*offer
	wakeAt  time.Duration // when the keeper looks next
	looking bool          // it looks at least once a second, because something is held
}

// session is a driver's session, its name, and what the store granted; a client has one at a
// time.
type session struct {
	driver.Session
	id          string
	ttl, margin time.Duration
}

// trust is for how long what an exchange has proven can be relied on.
func (s *session) trust() time.Duration { return s.ttl - s.margin }

// New opens a session at the store and keeps it alive. ctx bounds only the opening. The
// backend stays the caller's: close it after the client. Errors: ErrInvalid,
// ErrUnavailable, ErrRefused.
func New(ctx context.Context, backend driver.Backend, cfg *Config) (*Client, error) {
	return newClient(ctx, backend, cfg, asleep.Total)
}

func newClient(ctx context.Context, backend driver.Backend, cfg *Config, slept func() time.Duration) (*Client, error) {
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
		kick: make(chan struct{}, 1), closing: make(chan struct{}), waits: map[*wait]struct{}{}, offers: map[*Lease]*offer{},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.info = c.self.String()
	if len(c.info) > driver.MaxInfo/2 {
		return nil, fmt.Errorf("holdfast: %w labels: %d bytes encoded; allowed are %d", ErrInvalid, len(c.info), driver.MaxInfo/2)
	}
	if err := c.open(ctx); err != nil {
		return nil, fmt.Errorf("holdfast: open %s: %w", backend.Name(), err)
	}
	c.life, c.kill = context.WithCancel(context.Background())
	c.ends.Go(c.keep)
	return c, nil
}

// open starts a session with a fresh identity.
func (c *Client) open(ctx context.Context) error {
	id := strings.ToLower(rand.Text())
	ctx, cancel := context.WithTimeout(ctx, max(exchangeLimit, c.want))
	defer cancel()
	s, err := c.backend.Open(ctx, driver.SessionConfig{ID: id, TTL: c.want, Info: c.info})
	if err != nil {
		return err
	}
	ttl, margin := s.TTL(), c.margin
	if margin == 0 || margin > ttl/2 {
		margin = ttl / 10
	}
	c.session.Store(&session{s, id, ttl, margin})
	return nil
}

// Close ends every wait with ErrClosed, releases every lease, and ends the session. ctx
// bounds it; what the store did not hear by then runs out by itself within a TTL.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.closing)
	leases := append(slices.Clone(c.leases), slices.Collect(maps.Keys(c.offers))...)
	c.mu.Unlock()

	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	const atOnce = 32
	gate := make(chan struct{}, atOnce)
	var released sync.WaitGroup
	for _, l := range leases {
		gate <- struct{}{}
		released.Go(func() {
			defer func() { <-gate }()
			l.release(ctx)
		})
	}
	released.Wait()
	c.ends.Wait()
	c.kill()
	if err := c.session.Load().Close(ctx); err != nil {
		return fmt.Errorf("holdfast: close: %w", err)
	}
	return nil
}

// TTL is how long the store keeps the locks of this client after its last sign of life, at
// least, as the store granted it to the session of now: it may differ from what was asked.
func (c *Client) TTL() time.Duration { return c.session.Load().ttl }

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

// nextID names a request: unguessable by the session, unique by the count.
func (c *Client) nextID(s *session) string {
	var buf [48]byte
	b := append(buf[:0], s.id...)
	b = append(b, '-')
	return string(strconv.AppendUint(b, c.requests.Add(1), 36))
}

// background finishes f beside the caller, or with it once the client is closing. f must
// end when c.life does.
func (c *Client) background(f func()) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.ends.Add(1)
	}
	c.mu.Unlock()
	if closed {
		f()
		return
	}
	go func() { defer c.ends.Done(); f() }()
}

// insist repeats an exchange until the store has heard it, or has forgotten by itself
// what it is about: a TTL after the last sign of life.
func (c *Client) insist(f func(context.Context) error) {
	end := time.Now().Add(c.TTL())
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(c.life, c.limit())
		err := f(ctx)
		cancel()
		if err == nil || final(err) || time.Now().After(end) || !sleep(c.life, pause) {
			return
		}
	}
}

// sleep waits for d, or returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
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
