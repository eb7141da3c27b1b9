package holdfast_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// hooks puts functions of a test between a client and a store. A nil function passes the call on;
// any other decides whether to ask the store.
type hooks struct {
	driver.Backend
	open    func() (lost <-chan struct{})
	renew   func(ctx context.Context, holds []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error)
	acquire func(ctx context.Context, r *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error)
	release func(ctx context.Context, h driver.Hold, next func() error) error
	cancel  func(name string, next func() error) error
	adopt   func(next func() error) error
	reduce  func(n int, next func() error) error
	down    func(next func() error) error

	opening func(ctx context.Context) error // before a session is opened
	history func(ctx context.Context) error // in place of AddHistory
	forgets bool                            // Close of a session leaves its grants at the store

	// late returns how long after its caller has given up an exchange ("acquire", "adopt", "await")
	// reaches the store; 0: it is answered.
	late func(what string) time.Duration
}

type hooked struct {
	driver.Session
	h      *hooks
	lost   <-chan struct{}
	closed atomic.Bool
}

func (h *hooks) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if h.opening != nil {
		if err := h.opening(ctx); err != nil {
			return nil, err
		}
	}
	s, err := h.Backend.Open(ctx, cfg)
	n := &hooked{Session: s, h: h}
	if h.open != nil {
		n.lost = h.open()
	}
	return n, err
}

func (h *hooks) AddHistory(ctx context.Context, name, text string, keep int) error {
	if h.history != nil {
		return h.history(ctx)
	}
	return h.Backend.AddHistory(ctx, name, text, keep)
}

func (s *hooked) Lost() <-chan struct{} { return s.lost }

func (s *hooked) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	next := func() ([]driver.Change, error) { return s.Session.Renew(ctx, holds) }
	if s.h.renew != nil {
		return s.h.renew(ctx, holds, next)
	}
	return next()
}

// delayed reports whether the exchange reaches the store late. It is then not answered.
func (s *hooked) delayed(ctx context.Context, what string, f func(context.Context)) bool {
	if s.h.late == nil {
		return false
	}
	d := s.h.late(what)
	if d == 0 {
		return false
	}
	<-ctx.Done()
	go func() {
		time.Sleep(d)
		f(context.Background())
	}()
	return true
}

func unanswered(ctx context.Context) error {
	return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
}

func (s *hooked) Cancel(ctx context.Context, name, id string) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	next := func() error { return s.Session.Cancel(ctx, name, id) }
	if s.h.cancel != nil {
		return s.h.cancel(name, next)
	}
	return next()
}

func (s *hooked) Downgrade(ctx context.Context, h driver.Hold) error {
	next := func() error { return s.Session.Downgrade(ctx, h) }
	if s.h.down != nil {
		return s.h.down(next)
	}
	return next()
}

func (s *hooked) Reduce(ctx context.Context, h driver.Hold, n int) error {
	if s.delayed(ctx, "reduce", func(ctx context.Context) { _ = s.Session.Reduce(ctx, h, n) }) {
		return unanswered(ctx)
	}
	next := func() error { return s.Session.Reduce(ctx, h, n) }
	if s.h.reduce != nil {
		return s.h.reduce(n, next)
	}
	return next()
}

func (s *hooked) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if s.delayed(ctx, "await", func(ctx context.Context) { _, _ = s.Session.Await(ctx, name, id) }) {
		return driver.Reply{}, unanswered(ctx)
	}
	return s.Session.Await(ctx, name, id)
}

func (s *hooked) Close(ctx context.Context) error {
	if s.h.forgets {
		s.closed.Store(true)
		return nil
	}
	return s.Session.Close(ctx)
}

func (s *hooked) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	req := *r
	if s.delayed(ctx, "acquire", func(ctx context.Context) { _, _ = s.Session.Acquire(ctx, &req) }) {
		return driver.Reply{}, unanswered(ctx)
	}
	next := func() (driver.Reply, error) { return s.Session.Acquire(ctx, r) }
	if s.h.acquire != nil {
		return s.h.acquire(ctx, r, next)
	}
	return next()
}

func (s *hooked) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	next := func() error { return s.Session.Release(ctx, h, keep) }
	if s.h.release != nil {
		return s.h.release(ctx, h, next)
	}
	return next()
}

func (s *hooked) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if s.delayed(ctx, "adopt", func(ctx context.Context) { _ = s.Session.Adopt(ctx, h, id, info) }) {
		return unanswered(ctx)
	}
	next := func() error { return s.Session.Adopt(ctx, h, id, info) }
	if s.h.adopt != nil {
		return s.h.adopt(next)
	}
	return next()
}

// client opens a client that the test's cleanup closes.
func client(t testing.TB, b driver.Backend, cfg *holdfast.Config) *holdfast.Client {
	t.Helper()
	if cfg == nil {
		cfg = &holdfast.Config{}
	}
	if cfg.TTL == 0 {
		cfg.TTL = ttl
	}
	c, err := holdfast.New(t.Context(), b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // the test may have broken its store
	})
	return c
}

func lock(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Lease {
	t.Helper()
	l, err := c.Mutex(name, opts...).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t testing.TB, l *holdfast.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// within runs f and fails unless it took between least and most.
func within(t testing.TB, what string, least, most time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if d := time.Since(start); d < least || d > most {
		t.Errorf("%s took %v; want %v to %v", what, d, least, most)
	}
}

var _ driver.Backend = (*memlock.Store)(nil)

// taking takes the lock x of b in the background, with a client of its own. It returns when that
// client waits.
func taking(t *testing.T, b driver.Backend, opts ...holdfast.Option) <-chan *holdfast.Lease {
	got := make(chan *holdfast.Lease, 1)
	c := client(t, b, nil)
	go func() {
		l, err := c.Mutex("x", opts...).Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	synctest.Wait()
	return got
}
