package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// presence is what the sessions of both protocols have in common: a ZooKeeper session, how
// far it can be relied on, and what goes on in the background.
type presence struct {
	b   *Backend
	l   *link
	ttl time.Duration // for how long a grant is good after its proof: see trust

	life context.Context // of what goes on in the background
	kill context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex
	over bool
}

// trust is how much of a session's timeout a grant may be relied on: what zk.Session.Left
// leaves of it while all is well.
func trust(timeout time.Duration) time.Duration { return timeout * 3 / 5 }

func newPresence(b *Backend, l *link) *presence {
	p := &presence{b: b, l: l, ttl: trust(l.Timeout())}
	p.life, p.kill = context.WithCancel(context.Background())
	return p
}

// TTL is for how long a grant can be relied on after it was proven: 3/5 of the session's
// timeout.
func (p *presence) TTL() time.Duration { return p.ttl }

// Lost is closed when the session is over, by this side's clock or the servers' word.
func (p *presence) Lost() <-chan struct{} { return p.l.Lost() }

// leave ends the session at the servers, and with it its nodes, after last.
func (p *presence) leave(ctx context.Context, last func()) error {
	p.mu.Lock()
	first := !p.over
	p.over = true
	p.mu.Unlock()
	if !first {
		return nil
	}
	p.kill()
	last()
	err := p.l.Close(ctx)
	p.work.Wait()
	if errors.Is(err, zk.ErrSessionExpired) {
		err = nil // it was over
	}
	return explain(err)
}

// usable returns ErrClosed once the session is over.
func (p *presence) usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.l.Err() != nil {
		return driver.ErrClosed
	}
	return nil
}

// conclude is the outcome of a release: err, and if the session has no such grant, or had none
// any more, why that is, for which ended asks.
func (p *presence) conclude(done bool, err error, ended func() error) error {
	switch {
	case done && err == nil:
		return nil
	case done && errors.Is(err, zk.ErrConnectionLoss) && p.l.Err() != nil:
		// It was sent. Whether it was done before the session ended nobody can say, and whoever came next may have it from us.
		return fmt.Errorf("%w: the session has ended before the answer came: %w", driver.ErrUncertain, err)
	case errors.Is(p.l.Err(), zk.ErrSessionExpired):
		return fmt.Errorf("%w: the session has ended", driver.ErrGone)
	case err == nil || errors.Is(err, driver.ErrGone):
		return ended()
	}
	return explain(err)
}

// stale is how much older than begin the proof is that a grant's lease can count from, so
// that the servers keep the session for ttl after it.
func (p *presence) stale(begin time.Time) time.Duration {
	return max(0, p.ttl-p.l.Left()-time.Since(begin))
}

// prove returns an error if the servers may not keep the session for ttl from begin on.
func (p *presence) prove(begin time.Time) error {
	if d := p.stale(begin); d > 0 {
		return fmt.Errorf("zookeeper: %w: the last sign that the leader knows this session is too old by %v", driver.ErrUnavailable, d)
	}
	return nil
}

// soon bounds an exchange in the background.
func (p *presence) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.life, max(p.l.Timeout()/8, 100*time.Millisecond))
}

// spawn runs f in the background, unless the session is being closed.
func (p *presence) spawn(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.work.Go(f)
	}
}

// watchOver calls look every now and then, until the session is over.
func (p *presence) watchOver(look func(now time.Time)) {
	tick := time.NewTicker(max(p.l.Timeout()/16, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			look(time.Now())
		case <-p.life.Done():
			return
		case <-p.l.Lost():
			return
		}
	}
}

// pending is what the requests of both protocols have in common.
type pending struct {
	p    *presence
	gate chan struct{} // held by whoever exchanges something about the request

	// Guarded by the session's mutex.
	deadline time.Time // it lapses
	wake     chan uint64
}

func (p *presence) pending() pending {
	return pending{p: p, gate: make(chan struct{}, 1), deadline: time.Now().Add(p.l.Timeout())}
}

func (r *pending) lock(ctx context.Context) error {
	select {
	case r.gate <- struct{}{}:
		return nil
	default:
	}
	select {
	case r.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zookeeper: %w: an earlier exchange about the request goes on: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
}

func (r *pending) unlock() { <-r.gate }

// late reports whether nobody has renewed the request for a timeout.
func (r *pending) late() bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return time.Now().After(r.deadline)
}

// extend makes the request good for a timeout from then on.
func (r *pending) extend(from time.Time) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.deadline = from.Add(r.p.l.Timeout())
}

// listen returns the channel that wakes who waits from now on.
func (r *pending) listen() <-chan uint64 {
	wake := make(chan uint64, 1)
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.wake = wake
	return wake
}

// hush ends the wake-ups. One that nobody has fetched is of a grant that is not on record any
// more. Called with the session's mutex.
func (r *pending) hush() {
	if r.wake == nil {
		return
	}
	select {
	case <-r.wake:
	default:
	}
	r.wake = nil
}

// push wakes whoever waits for the request: with a token, or 0 to make them ask.
func (r *pending) push(token uint64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.wake == nil {
		return
	}
	select {
	case <-r.wake:
	default:
	}
	r.wake <- token
}
