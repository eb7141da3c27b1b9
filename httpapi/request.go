package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/signs"
)

// request is a number of a session, and what has become of it: it waits, or has a lease, or has its
// final answer. Guarded by the session's mutex, except what is set once.
type request struct {
	number  uint64
	name    string
	sum     [sha256.Size]byte // of what was asked first; zero: anything repeats it
	attempt *attempt
	polls   int // connections that wait for it
	asked   int // how often the program has asked

	lease  *holdfast.Lease // nil: it waits, or was released
	secret string          // of the lease
	heard  bool            // an answer with the lease was sent
	final  *problem        // what a repeat is told; nil: it waits or holds

	releasing chan struct{} // closed when the release was answered; nil: none has begun
	released  *problem      // the outcome of the release, to be read after that; nil: it was released
}

// attempt is one call of Lock for a request. A request has another one if the connection of the
// first ended while it waited.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the attempt has ended
	fail   *problem      // why it did not get the lock; to be read after done
	left   bool          // nobody wants its grant; guarded by the session's mutex
}

// take returns the call that takes the lock that in asks for.
func (ss *session) take(in acquireIn) func(context.Context) (*holdfast.Lease, error) {
	c := ss.s.c
	opts := []holdfast.Option{holdfast.MaxHold(c.TTL())}
	for k, v := range in.Labels {
		opts = append(opts, holdfast.Label(k, v))
	}
	opts = append(opts, holdfast.Label(LabelSession, ss.id)) // the last one counts
	if ss.client != "" {
		opts = append(opts, holdfast.Label(LabelClient, ss.client))
	}
	if in.Note != "" {
		opts = append(opts, holdfast.Note(in.Note))
	}
	wait := in.Wait == nil || *in.Wait
	switch in.Mode {
	case modeShared:
		m := c.RWMutex(in.Name, opts...)
		if wait {
			return m.RLock
		}
		return m.TryRLock
	case modePermits:
		sem := c.Semaphore(in.Name, in.Limit, opts...)
		return func(ctx context.Context) (*holdfast.Lease, error) {
			if wait {
				return sem.Acquire(ctx, in.Permits)
			}
			return sem.TryAcquire(ctx, in.Permits)
		}
	}
	m := c.Mutex(in.Name, opts...)
	if wait {
		return m.Lock
	}
	return m.TryLock
}

// The labels of every grant and place that the API takes. Operators see them; a program cannot
// choose them.
const (
	LabelSession = signs.LabelSession // "http-session"; tells sessions apart; it is no secret
	LabelClient  = "http-client"      // what the program calls itself
)

// join returns the request of that number, with one more poll, and starts an attempt if it needs
// one. It returns the final answer if the number has one.
func (ss *session) join(in *acquireIn) (*request, *attempt, *problem) {
	sum := in.sum()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	q := ss.requests[in.Request]
	switch {
	case ss.over:
		return nil, nil, errSession
	case q != nil && q.sum != sum && q.sum != [sha256.Size]byte{}:
		return nil, nil, &problem{status: http.StatusConflict, Code: "request_differs",
			Message: "this number was used for another request; choose a larger number"}
	case q != nil:
		ss.settleOne(q)
		if q.final != nil {
			return nil, nil, q.final
		}
		q.polls++
		q.asked++
		return q, q.attempt, nil
	case in.Request <= ss.low:
		return nil, nil, &problem{status: http.StatusConflict, Code: "request_too_old",
			Message: "this number is below one that is no longer remembered; choose a larger number"}
	case ss.s.isDraining():
		return nil, nil, errDraining
	case ss.live >= ss.s.cfg.MaxRequests:
		if ss.settle(); ss.live >= ss.s.cfg.MaxRequests {
			return nil, nil, &problem{status: http.StatusTooManyRequests, Code: "too_many_requests",
				Message: "this session holds and waits for as many locks as a session may: " +
					strconv.Itoa(ss.s.cfg.MaxRequests)}
		}
	}
	select {
	case ss.s.waits <- struct{}{}:
	default:
		return nil, nil, &problem{status: http.StatusServiceUnavailable, Code: "too_many_waits",
			Message: "as many requests wait as this server allows; try again later"}
	}
	ctx, cancel := context.WithCancel(ss.ctx)
	q = &request{number: in.Request, name: in.Name, sum: sum, polls: 1,
		attempt: &attempt{cancel: cancel, done: make(chan struct{})}}
	ss.requests[in.Request] = q
	ss.live++
	go ss.run(ctx, q, q.attempt, *in)
	return q, q.attempt, nil
}

// run is the goroutine of an attempt.
func (ss *session) run(ctx context.Context, q *request, a *attempt, in acquireIn) {
	lease, err := ss.take(in)(ctx)
	a.cancel()
	ss.mu.Lock()
	a.cancel = func() {} // the session remembers the attempt for long, but needs no context
	unwanted := lease != nil && (a.left || ss.over)
	switch {
	case a.left:
	case ss.over:
		a.fail = errSession
	case err != nil:
		a.fail = storeProblem(err)
		if a.fail.open { // a repeat may try again
			ss.forgetAttempt(q, a)
		} else {
			ss.finish(q, a.fail)
		}
	default:
		q.lease, q.secret = lease, newSecret()
		ss.leases[keyOf(q.secret)] = q
	}
	ss.mu.Unlock()
	if a.fail != nil && a.fail.open {
		ss.s.log("acquire", err)
	}
	if unwanted {
		if err := lease.ReleaseNow(); err != nil {
			ss.s.log("release of a grant that nobody waited for", err)
		}
	}
	<-ss.s.waits // before the answer: the program's next request may come at once
	close(a.done)
}

// forgetAttempt makes the number of q as new, because no answer about it was final. Called with
// ss.mu held.
func (ss *session) forgetAttempt(q *request, a *attempt) {
	if a.left || q.attempt != a {
		return
	}
	a.left = true
	if ss.requests[q.number] == q && q.final == nil {
		delete(ss.requests, q.number)
		ss.live--
	}
}

// unjoin ends a poll. gone: its connection has ended, so a wait leaves the queue at once. Otherwise
// the program has been told to ask again, and the place stays until it should have.
func (ss *session) unjoin(q *request, a *attempt, gone bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	q.polls--
	switch {
	case q.polls > 0 || q.final != nil || a.left || q.heard:
	case gone && q.lease == nil:
		ss.abandon(q, a)
	default:
		asked := q.asked
		time.AfterFunc(ss.poll(), func() {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			if q.asked == asked && q.final == nil && !q.heard {
				ss.abandon(q, a)
			}
		})
	}
}

// abandon ends a wait, or a grant that no answer has reported. Called with ss.mu held.
func (ss *session) abandon(q *request, a *attempt) {
	ss.forgetAttempt(q, a)
	a.cancel()
	if l := q.lease; l != nil {
		delete(ss.leases, keyOf(q.secret))
		go func() {
			if err := l.ReleaseNow(); err != nil && !errors.Is(err, holdfast.ErrLost) {
				ss.s.log("release of a grant that no answer reported", err)
			}
		}()
	}
}

// withdraw makes number n final: its wait or grant ends, and no later copy of the request takes the
// lock. It returns when that is done, or ctx ends.
func (ss *session) withdraw(ctx context.Context, n uint64) *problem {
	ss.mu.Lock()
	if ss.over {
		ss.mu.Unlock()
		return errSession
	}
	q := ss.requests[n]
	switch {
	case q == nil && n <= ss.low:
		ss.mu.Unlock()
		return nil // a copy is refused
	case q == nil:
		ss.requests[n] = &request{number: n, final: errCancelled}
		ss.forget()
		ss.mu.Unlock()
		return nil
	}
	ss.settleOne(q)
	if q.final != nil {
		ss.mu.Unlock()
		return nil
	}
	a, held := q.attempt, q.lease != nil
	if !held {
		a.left = true
		ss.finish(q, errCancelled)
		a.cancel()
	}
	ss.mu.Unlock()
	if held {
		return ss.release(q, errCancelled)
	}
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	return nil
}

// release ends the lease of q. A repeat has the answer of the first.
func (ss *session) release(q *request, final *problem) *problem {
	ss.mu.Lock()
	if q.releasing != nil {
		ss.mu.Unlock()
		<-q.releasing
		return q.released
	}
	q.releasing = make(chan struct{})
	ss.finish(q, final)
	l := q.lease
	ss.mu.Unlock()
	// A minimum hold does not exist here, so Release and ReleaseNow differ in what they report.
	if err := l.Release(); err != nil {
		if q.released = lostProblem(err); q.released.open {
			ss.s.log("release", err)
		}
	}
	ss.mu.Lock()
	q.lease = nil // the session remembers the number for long, and a lease is large
	ss.mu.Unlock()
	close(q.releasing)
	return q.released
}

// renew makes the lease of q last a TTL from arrived. The answer is computed from what the lease has
// then, so an error is of no consequence beyond that.
func (ss *session) renew(q *request, arrived time.Time) {
	if ss.s.isDraining() {
		return
	}
	ttl := ss.s.c.TTL()
	d := arrived.Add(ttl).Sub(ss.s.now())
	if d <= 0 {
		return
	}
	l := ss.leaseOf(q)
	if l == nil {
		return
	}
	if err := l.Extend(d); err != nil && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrReleased) {
		ss.s.log("renew", err)
	}
}

// leaseOf returns the lease of q; nil if there is none, or it was released.
func (ss *session) leaseOf(q *request) *holdfast.Lease {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return q.lease
}

// state returns the answer about a lease: for how long it can be trusted, or why it has ended.
func (ss *session) state(q *request, arrived time.Time) (leaseOut, *problem) {
	l := ss.leaseOf(q)
	var trusted time.Duration
	if l != nil {
		trusted = ss.trusted(l, arrived)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.settleOne(q)
	switch {
	case q.final != nil:
		return leaseOut{}, q.final
	case l == nil: // it was withdrawn
		return leaseOut{}, errCancelled
	}
	out := leaseOut{Request: q.number, Name: q.name, Token: strconv.FormatUint(l.Token(), 10),
		TrustedMS: trusted.Milliseconds()}
	if n := l.Revocation(); n != nil {
		out.Asked = n.String()
	}
	return out, nil
}
