package holdfast

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// faultyStore is the way of one client to a store in memory: slow, and now and then an exchange does not
// arrive, is not answered, or a call-back is lost or late.
type faultyStore struct {
	*memlock.Store
	down  atomic.Bool // nothing arrives
	calls sync.WaitGroup

	mu   sync.Mutex
	rng  *rand.Rand
	lost chan struct{} // of the present session
}

func (s *faultyStore) chance(n int) bool { return s.pick(n) == 0 }

func (s *faultyStore) pick(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *faultyStore) pause(most time.Duration) time.Duration {
	return time.Duration(s.pick(int(most)))
}

func (s *faultyStore) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	wanted := cfg.Wanted
	cfg.Wanted = func(name, id string) {
		switch {
		case s.chance(8):
		case s.chance(4):
			late := s.pause(20 * time.Millisecond)
			s.calls.Go(func() { time.Sleep(late); wanted(name, id) })
		default:
			wanted(name, id)
		}
	}
	n, err := s.Store.Open(ctx, cfg)
	lost := make(chan struct{})
	s.mu.Lock()
	s.lost = lost
	s.mu.Unlock()
	return &faultySession{n, s, lost}, err
}

// lose ends the session.
func (s *faultyStore) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.lost:
	default:
		close(s.lost)
	}
}

type faultySession struct {
	driver.Session
	s    *faultyStore
	lost chan struct{}
}

func (n *faultySession) Lost() <-chan struct{} { return n.lost }

// exchange is one exchange with the store.
func (n *faultySession) exchange(do func() error) error {
	fails := func() bool {
		time.Sleep(n.s.pause(2 * time.Millisecond))
		return n.s.down.Load() || n.s.chance(60)
	}
	if fails() {
		return driver.ErrUnavailable
	}
	err := do()
	if fails() {
		return driver.ErrUncertain
	}
	return err
}

// alive is exchange for what a session that is over cannot do any more.
func (n *faultySession) alive(do func() error) error {
	return n.exchange(func() error {
		select {
		case <-n.lost:
			return driver.ErrClosed
		default:
			return do()
		}
	})
}

func (n *faultySession) Acquire(ctx context.Context, r *driver.Request) (reply driver.Reply, err error) {
	if err = n.alive(func() error { reply, err = n.Session.Acquire(ctx, r); return err }); err != nil {
		return driver.Reply{}, err
	}
	return reply, nil
}

func (n *faultySession) Renew(ctx context.Context, holds []driver.Hold) (changes []driver.Change, err error) {
	if err = n.alive(func() error { changes, err = n.Session.Renew(ctx, holds); return err }); err != nil {
		return nil, err
	}
	return changes, nil
}

func (n *faultySession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	return n.exchange(func() error { return n.Session.Release(ctx, h, keep) })
}

func (n *faultySession) Cancel(ctx context.Context, name, id string) error {
	return n.exchange(func() error { return n.Session.Cancel(ctx, name, id) })
}

const faultyTTL = time.Second

// stickyRun is three clients, two of them sticky, that want x at once, while their stores fail, the
// first one's machine sleeps, sessions end, grants are revoked and call-backs come for no reason.
type stickyRun struct {
	t     *testing.T
	seed  uint64
	d     time.Duration // of Sticky
	store *memlock.Store
	users []stickyUser
	slept atomic.Int64

	mu     sync.Mutex
	inside map[*Lease]bool
	last   uint64
	leases int
}

type stickyUser struct {
	c      *Client
	s      *faultyStore
	sticky bool
}

func newStickyRun(t *testing.T, seed uint64) *stickyRun {
	ds := []time.Duration{3 * time.Millisecond, 50 * time.Millisecond, time.Hour}
	r := &stickyRun{t: t, seed: seed, d: ds[seed%3], store: memlock.New(), inside: map[*Lease]bool{}}
	for i := range uint64(3) {
		s := &faultyStore{Store: r.store, rng: rand.New(rand.NewPCG(seed, i))}
		c, err := newClient(t.Context(), s, &Config{TTL: faultyTTL}, func() time.Duration {
			if i > 0 {
				return 0
			}
			return time.Duration(r.slept.Load())
		})
		if err != nil {
			t.Fatal(err)
		}
		r.users = append(r.users, stickyUser{c, s, i < 2})
	}
	return r
}

// take calls u for x, in one of many ways. It returns the lease of x, and how to release what it took.
func (r *stickyRun) take(ctx context.Context, u stickyUser) (l *Lease, release func() error, err error) {
	var opts []Option
	if u.sticky && !u.s.chance(8) {
		opts = append(opts, Sticky(r.d))
	}
	if u.s.chance(10) {
		opts = append(opts, Note("another cohort"))
	}
	m := u.c.Mutex("x", opts...)
	switch u.s.pick(12) {
	case 0, 1:
		l, err = m.TryLock(ctx)
	case 2:
		l, err = u.c.Mutex("x", Poll(5*time.Millisecond, 3)).Lock(ctx)
	case 3:
		l, err = u.c.Mutex("x", append(opts, WaitAtMost(1+u.s.pause(30*time.Millisecond)))...).Lock(ctx)
	case 4, 5:
		all, err := LockAll(ctx, u.c.Mutex("w", opts...), m, u.c.Mutex("y", opts...))
		if err != nil {
			return nil, nil, err
		}
		return all.Leases()[1], all.Release, nil
	default:
		l, err = m.Lock(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	return l, func() error { return r.end(u, l) }, nil
}

// end ends l in one of many ways.
func (r *stickyRun) end(u stickyUser, l *Lease) error {
	switch u.s.pick(20) {
	case 0:
		return l.ReleaseNow()
	case 1:
		_, _ = l.Ticket()
	case 2:
		if text, _, err := l.HandOff(); err == nil {
			if a, err := r.users[u.s.pick(3)].c.Adopt(context.Background(), text); err == nil {
				_ = a.Release()
			}
		}
	}
	return l.Release()
}

// round takes x once, checks that nobody else has it, and that the token grows.
func (r *stickyRun) round(u stickyUser) {
	ctx, cancel := r.t.Context(), func() {}
	if u.s.chance(4) {
		ctx, cancel = context.WithTimeout(ctx, u.s.pause(20*time.Millisecond))
	}
	defer cancel()
	l, release, err := r.take(ctx, u)
	if err != nil {
		return
	}
	r.mu.Lock()
	valid := l.Err() == nil // the machine may have slept since the store has answered
	for x := range r.inside {
		if valid && x.Err() == nil {
			r.t.Errorf("seed %d: both %d and %d are held", r.seed, x.Token(), l.Token())
		}
	}
	if valid && l.Token() <= r.last {
		r.t.Errorf("seed %d: token %d after %d", r.seed, l.Token(), r.last)
	}
	r.last = max(r.last, l.Token())
	r.leases++
	r.inside[l] = true
	r.mu.Unlock()
	if u.s.chance(3) {
		l.Context(context.Background())
	}
	if u.s.chance(3) {
		time.Sleep(u.s.pause(3 * time.Millisecond))
	}
	if u.s.chance(60) {
		time.Sleep(2 * faultyTTL)
	}
	r.mu.Lock()
	delete(r.inside, l)
	r.mu.Unlock()
	_ = release()
	if u.s.chance(3) {
		time.Sleep(u.s.pause(min(2*r.d, time.Minute)))
	}
}

// disturb lets something happen to a client now and then, until stop is closed. In every fourth run it may
// close one.
func (r *stickyRun) disturb(stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(r.seed, 99))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))):
		}
		u := r.users[rng.IntN(3)]
		switch rng.IntN(6) {
		case 0:
			u.s.down.Store(true)
			time.Sleep(time.Duration(rng.Int64N(int64(2 * faultyTTL))))
			u.s.down.Store(false)
		case 1:
			r.sleep(time.Duration(rng.Int64N(int64(2 * faultyTTL))))
		case 2:
			u.s.lose()
		case 3:
			if x, err := r.store.Inspect(r.t.Context(), "x"); err == nil && len(x.Holders) > 0 {
				_ = u.c.Revoke(r.t.Context(), "x", x.Holders[0].Token, "")
			}
		case 4:
			for _, id := range u.grants() {
				u.c.calledBack("x", id)
			}
		case 5:
			if r.seed%4 == 0 && rng.IntN(4) == 0 {
				_ = u.c.Close(context.Background()) // its store may be away
			}
		}
	}
}

// sleep is a sleep of the machine of the first client. If it is longer than a lease, the store has given its
// grant of x away meanwhile.
func (r *stickyRun) sleep(d time.Duration) {
	r.slept.Add(int64(d))
	if d < faultyTTL {
		return
	}
	x, err := r.store.Inspect(r.t.Context(), "x")
	if err != nil {
		r.t.Error(err)
	}
	for _, h := range x.Holders {
		if slices.Contains(r.users[0].grants(), h.ID) {
			_ = r.store.Break(r.t.Context(), "x", h.Token) // or it has just ended
		}
	}
}

// grants returns the request IDs of the grants that u has.
func (u stickyUser) grants() (ids []string) {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	for _, l := range u.c.leases {
		ids = append(ids, l.req.ID)
	}
	return ids
}

// checkNothingLeft checks that neither the store nor a client has anything left, except what makes blocks
// large.
func checkNothingLeft(t *testing.T, seed uint64, store *memlock.Store, users []stickyUser) {
	t.Helper()
	synctest.Wait()
	if list, err := store.List(t.Context(), "", "", 10); err != nil || len(list) > 0 {
		t.Errorf("seed %d: %v; left at the store: %+v", seed, err, list)
	}
	for i, u := range users {
		if !u.c.isOpen() {
			continue
		}
		u.c.mu.Lock()
		for _, k := range u.c.cohorts {
			if !k.full || k.current != nil || k.asking || k.line.n > 0 {
				t.Errorf("seed %d: client %d has the cohort %+v", seed, i, k)
			}
		}
		if len(u.c.leases)+len(u.c.waits)+len(u.c.attempts)+len(u.c.offers)+len(u.c.readers) > 0 {
			t.Errorf("seed %d: client %d has %d leases, %d places, %d calls, %d offers, %d readers", seed, i,
				len(u.c.leases), len(u.c.waits), len(u.c.attempts), len(u.c.offers), len(u.c.readers))
		}
		u.c.mu.Unlock()
	}
}

// Sticky clients exclude each other, and tokens grow, whatever happens to them. Nothing is left. Here
// sessions end, machines sleep and stores fall silent, so leases are lost. In TestStickyExcludes none is, and
// idle grants have to be back after d.
func TestStickyWithFaults(t *testing.T) {
	leases := 0
	for seed := range uint64(36) {
		synctest.Test(t, func(t *testing.T) {
			r := newStickyRun(t, seed)
			stop := make(chan struct{})
			var disturber, all sync.WaitGroup
			disturber.Go(func() { r.disturb(stop) })
			for i := range 12 {
				all.Go(func() {
					for range 20 {
						r.round(r.users[i%3])
					}
				})
			}
			all.Wait()
			close(stop)
			disturber.Wait()
			if r.d < time.Hour {
				time.Sleep(2*r.d + 12*faultyTTL)
				checkNothingLeft(t, seed, r.store, r.users)
			}
			for _, u := range r.users {
				_ = u.c.Close(context.Background()) // a session may be over
				u.s.calls.Wait()
			}
			leases += r.leases
		})
	}
	if leases < 2000 {
		t.Errorf("only %d leases", leases)
	}
}
