package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/internal/waiters"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// sessionBase is what the sessions of both protocols share: a ZooKeeper session, for how long to
// trust it, and the background work.
type sessionBase struct {
	b   *Backend
	l   *link
	ttl time.Duration // for how long a grant is valid after its proof: see trust

	workCtx    context.Context // of the background work
	cancelWork context.CancelFunc
	work       sync.WaitGroup

	mu   sync.Mutex
	over bool
}

// trust returns for how long a grant may be trusted in a session with this timeout: what
// zk.Session.Left returns in normal operation.
func trust(timeout time.Duration) time.Duration { return timeout * 3 / 5 }

func newSessionBase(b *Backend, l *link) *sessionBase {
	p := &sessionBase{b: b, l: l, ttl: trust(l.Timeout())}
	p.workCtx, p.cancelWork = context.WithCancel(context.Background())
	return p
}

// TTL returns for how long a grant can be trusted after its proof: 3/5 of the session's timeout.
func (p *sessionBase) TTL() time.Duration { return p.ttl }

// Lost returns a channel that is closed when the session is over: by this side's clock, or because
// the servers reported it.
func (p *sessionBase) Lost() <-chan struct{} { return p.l.Lost() }

// endSession calls last, then ends the session at the servers, and with it its nodes.
func (p *sessionBase) endSession(ctx context.Context, last func()) error {
	p.mu.Lock()
	first := !p.over
	p.over = true
	p.mu.Unlock()
	if !first {
		return nil
	}
	p.cancelWork()
	last()
	err := p.l.Close(ctx)
	p.work.Wait()
	if errors.Is(err, zk.ErrSessionExpired) {
		err = nil // the session was over already
	}
	return explain(err)
}

// usable returns ErrClosed once the session is over.
func (p *sessionBase) usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.l.Err() != nil {
		return driver.ErrClosed
	}
	return nil
}

// releaseError returns the result of a release. done reports that the session had the grant. If the
// grant had ended before, ended finds out why.
func (p *sessionBase) releaseError(done bool, err error, ended func() error) error {
	switch {
	case done && err == nil:
		return nil
	case done && errors.Is(err, zk.ErrConnectionLoss) && p.l.Err() != nil:
		// The request was sent. Nobody can know whether a server did it before the session ended. A
		// later holder may have the lock because of it.
		return fmt.Errorf("%w: the session has ended before the answer came: %w", driver.ErrUncertain, err)
	case errors.Is(p.l.Err(), zk.ErrSessionExpired):
		return fmt.Errorf("%w: the session has ended", driver.ErrGone)
	case err == nil || errors.Is(err, driver.ErrGone):
		return ended()
	}
	return explain(err)
}

// stale returns how much older than begin the proof is from which a grant's lease can count: the
// servers keep the session for ttl after the proof.
func (p *sessionBase) stale(begin time.Time) time.Duration {
	return max(0, p.ttl-p.l.Left()-time.Since(begin))
}

// prove returns an error if the servers may not keep the session for ttl from begin.
func (p *sessionBase) prove(begin time.Time) error {
	if d := p.stale(begin); d > 0 {
		return fmt.Errorf("zookeeper: %w: the last proof that the leader knows this session is too old by %v",
			driver.ErrUnavailable, d)
	}
	return nil
}

// exchangeCtx returns a context that bounds one exchange in the background.
func (p *sessionBase) exchangeCtx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.workCtx, max(p.l.Timeout()/8, 100*time.Millisecond))
}

// spawn runs f in the background, unless the session is being closed.
func (p *sessionBase) spawn(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.work.Go(f)
	}
}

// insist repeats f, in the background, until it returns true or the session is over.
func (p *sessionBase) insist(f func(ctx context.Context) (done bool)) {
	for pause := (backoff.Pause{First: 10 * time.Millisecond, Most: time.Second}); ; {
		ctx, cancel := p.exchangeCtx()
		done := f(ctx)
		cancel()
		if done {
			return
		}
		select {
		case <-time.After(pause.Next()):
		case <-p.l.Lost():
			return
		case <-p.workCtx.Done():
			return
		}
	}
}

// runPeriodically calls look every sixteenth of the timeout, until the session is over.
func (p *sessionBase) runPeriodically(look func(now time.Time)) {
	tick := time.NewTicker(max(p.l.Timeout()/16, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			look(time.Now())
		case <-p.workCtx.Done():
			return
		case <-p.l.Lost():
			return
		}
	}
}

// requestBase is what the requests of both protocols share.
type requestBase struct {
	p     *sessionBase
	mutex chan struct{} // a mutex: one exchange about the request at a time

	// Guarded by the session's mutex.
	deadline time.Time // when it expires unless renewed
	wake     waiters.Slot
}

func (p *sessionBase) newRequestBase() requestBase {
	return requestBase{p: p, mutex: make(chan struct{}, 1), deadline: time.Now().Add(p.l.Timeout())}
}

func (r *requestBase) lock(ctx context.Context) error {
	select {
	case r.mutex <- struct{}{}:
		return nil
	default:
	}
	select {
	case r.mutex <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zookeeper: %w: an earlier exchange about the request is not finished: %w", driver.ErrUnavailable,
			context.Cause(ctx))
	}
}

func (r *requestBase) unlock() { <-r.mutex }

// late reports whether nobody has renewed the request for a timeout.
func (r *requestBase) late() bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return time.Now().After(r.deadline)
}

// extend makes the request valid for a timeout after from.
func (r *requestBase) extend(from time.Time) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.deadline = from.Add(r.p.l.Timeout())
}

// newWake returns the channel that gets the request's wake-ups from now on.
func (r *requestBase) newWake() <-chan uint64 {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.wake = waiters.NewSlot()
	return r.wake
}

// stopWakeups ends the wake-ups. It discards one that nobody has received: its grant is no longer
// on record. The caller holds the session's mutex.
func (r *requestBase) stopWakeups() {
	r.wake.Drain()
	r.wake = nil
}

// push wakes the waiter of the request: with a token, or with 0 to make it ask again.
func (r *requestBase) push(token uint64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.wake.Put(token)
}
