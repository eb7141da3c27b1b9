package holdfast

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// Candidacy campaigns in the background, and again after each loss of the leadership, until Stop,
// the end of its context, or the Close of the client. Its methods are safe for concurrent use.
type Candidacy struct {
	lease atomic.Pointer[Lease] // the last one that it has got
	stop  context.CancelFunc
	done  chan struct{}

	mu  sync.Mutex
	err error
}

// Stand starts a candidate that campaigns in the background. ctx bounds the candidacy. While the
// store does not answer, the candidate tries again, with pauses of up to a second.
//
// Use it where each request asks whether this process leads, and may do what only the leader does:
//
//	if l := candidacy.Lease(); l != nil {
//		err = write(l.Context(ctx), l.Token())
//	}
//
// For work that the leader does all the time, Lead is simpler: it stops the work before it resigns.
//
// Errors: ErrInvalid, ErrClosed.
func (e *Election) Stand(ctx context.Context) (*Candidacy, error) {
	const op = "stand"
	if err := e.part().usable(op); err != nil {
		return nil, err
	}
	c := e.c
	if !c.work.tryAdd() {
		return nil, &Error{Op: op, Name: e.req.Name, Err: ErrClosed}
	}
	ctx, stop := context.WithCancel(ctx)
	y := &Candidacy{stop: stop, done: make(chan struct{})}
	go func() {
		defer c.work.done()
		defer close(y.done)
		defer stop()
		err := y.run(ctx, e)
		y.mu.Lock()
		y.err = err
		y.mu.Unlock()
	}()
	return y, nil
}

// run returns why the candidacy has ended. It has resigned then.
func (y *Candidacy) run(ctx context.Context, e *Election) error {
	pause := backoff.Pause{First: firstPause, Most: time.Second}
	for {
		l, err := e.Campaign(ctx)
		if err == nil {
			pause.Reset()
			y.lease.Store(l)
			select {
			case <-l.Done():
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return l.Release()
			}
			_ = l.Release() // it is lost: the store may keep the name for nobody
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrDeadlock):
			return err
		}
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

// Lease returns the lease of the leadership, or nil if this candidate does not lead.
func (y *Candidacy) Lease() *Lease {
	if l := y.lease.Load(); l != nil && l.Err() == nil {
		return l
	}
	return nil
}

// IsLeader reports whether this candidate leads. It reads the clock, so it is false as soon as the
// lease has expired. Work that follows may still outlive the lease: use Lease, its Context and its
// Token.
func (y *Candidacy) IsLeader() bool { return y.Lease() != nil }

// Done returns a channel that is closed when the candidacy has ended, and its leadership with it.
func (y *Candidacy) Done() <-chan struct{} { return y.done }

// Stop resigns and ends the candidacy. It returns when the release has been answered, or a third of
// the TTL has passed: the errors are those of Lease.Release, or why the candidacy had ended before.
func (y *Candidacy) Stop() error {
	y.stop()
	<-y.done
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.err
}
