package verify

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// proofRecorder wraps a client's store, and records the send times of the exchanges that prove
// places in the queue and leases. The client's calls do not show them. It reads the clock before it
// sends, so that no proof has a later time than the store's.
type proofRecorder struct {
	driver.Backend
	rec    *history.Recorder
	client string

	mu       sync.Mutex
	attempts map[string][]*attempt // by the ID of the request at the store; readers may share a grant
	proofs   map[string]int64      // by that ID: when the latest exchange was sent that proved its place or grant
	ttl      time.Duration         // of the session
}

func newProofRecorder(b driver.Backend, rec *history.Recorder, client string) *proofRecorder {
	return &proofRecorder{Backend: b, rec: rec, client: client, attempts: map[string][]*attempt{},
		proofs: map[string]int64{}}
}

// Open wraps the session.
func (w *proofRecorder) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := w.Backend.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.ttl = s.TTL()
	w.mu.Unlock()
	return &recordedSession{s, w}, nil
}

// of returns the attempts whose place or grant is that of the request id.
func (w *proofRecorder) of(id string) []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.attempts[id])
}

// rename makes id the request ID of a at the store. Another call may have had it until now, unless a shares
// its grant.
func (w *proofRecorder) rename(a *attempt, id string, shares bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.attempts[a.place], func(x *attempt) bool { return x == a })
	if w.attempts[a.place] = left; len(left) == 0 {
		delete(w.attempts, a.place)
	}
	switch a.place = id; {
	case id == "":
	case shares:
		w.attempts[id] = append(w.attempts[id], a)
	default:
		w.attempts[id] = []*attempt{a}
	}
}

// waiting is the client's Observer: the store has reported a place in the queue.
func (w *proofRecorder) waiting(report holdfast.Waiting) {
	for _, a := range w.of(report.ID) {
		a.queuedNow()
	}
}

// waitEnded is the client's Observer: a call has ended. Its lease may be under the grant of another
// call's request, or it has taken over the place of one; the proofs are then those of that request.
func (w *proofRecorder) waitEnded(ctx context.Context, e holdfast.WaitEnd) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	switch {
	case !ok:
		return
	case e.Token == 0:
		w.rename(a, "", false) // another call may take over its request
		return
	case a.place != e.ID:
		w.rename(a, e.ID, e.Mode == holdfast.ModeShared)
	}
	w.mu.Lock()
	proof, ttl := w.proofs[e.ID], w.ttl
	w.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.granted, a.ttl, a.proof = e.Token, ttl, max(a.proof, proof)
}

// proved notes that an exchange sent at sent has proved the place or grant of the request id.
func (w *proofRecorder) proved(id string, sent int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proofs[id] = max(w.proofs[id], sent)
}

// forget drops the proofs of a request that has ended.
func (w *proofRecorder) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.proofs, id)
}

type attemptKey struct{}

// recordedSession is a session whose exchanges are recorded.
type recordedSession struct {
	driver.Session
	w *proofRecorder
}

// Release ends the request.
func (s *recordedSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	defer s.w.forget(h.ID)
	return s.Session.Release(ctx, h, keep)
}

// Cancel ends the request.
func (s *recordedSession) Cancel(ctx context.Context, name, id string) error {
	defer s.w.forget(id)
	return s.Session.Cancel(ctx, name, id)
}

func (s *recordedSession) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return s.Session.Acquire(ctx, req)
	}
	if a.place != req.ID {
		if a.place != "" { // the client has a new session, and left the queue with the old one
			a.left(history.Now())
		}
		s.w.rename(a, req.ID, false)
	}
	sent := history.Now()
	reply, err := s.Session.Acquire(ctx, req)
	a.answered(sent-int64(reply.Stale), s.TTL(), req.Wait, reply.Token, err)
	if err == nil {
		s.w.proved(req.ID, sent-int64(reply.Stale))
	}
	return reply, err
}

func (s *recordedSession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	sent := history.Now()
	changes, err := s.Session.Renew(ctx, holds)
	if err != nil {
		return changes, err
	}
	at := history.Now()
	states := make(map[int]driver.Change, len(changes))
	for _, ch := range changes {
		states[ch.Index] = ch
	}
	for i, h := range holds {
		ch := states[i]
		if ch.State != driver.Unknown && ch.State != driver.Gone {
			s.w.proved(h.ID, sent)
		}
		for _, a := range s.w.of(h.ID) { // none: released meanwhile, or cancelled
			switch {
			case ch.State == driver.Unknown:
			case ch.State == driver.Gone:
				if h.Token == 0 {
					a.left(at)
				}
			case h.Token != 0:
				a.proved(sent, 0)
				s.w.rec.Record(history.Event{T: at, Kind: history.Renewed, Client: s.w.client, ID: a.id, Name: h.Name,
					Token: a.leaseToken(h.Token), From: sent})
			default:
				a.proved(sent, ch.Token)
			}
		}
	}
	return changes, nil
}

// attempt is one call that requests a lock, and its outcome.
type attempt struct {
	id    string // in the history
	place string // the ID of its request at the store; only the call itself changes it
	loop  *loop
	call  int64

	mu      sync.Mutex
	ttl     time.Duration // of the session
	proof   int64         // when the latest exchange was sent that proved the place or the lease
	token   uint64        // of a grant that an answer contained
	granted uint64        // of the lease, if the call has got one
	from    int64         // when the exchange of that answer was sent
	queued  int64         // when the store reported the current place in the queue
	open    bool          // the store may have done more than it reported
}

// answered takes in the answer to an Acquire whose proof dates from proof.
func (a *attempt) answered(proof int64, ttl time.Duration, wait bool, token uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ttl = ttl
	if err == nil {
		a.doubt()
	}
	switch {
	case err != nil:
		a.open = a.open || !refusal(err)
	case token != 0:
		a.token, a.from = token, proof
		a.proof = max(a.proof, proof)
	default:
		a.open = a.open || wait
		a.proof = max(a.proof, proof)
	}
}

// doubt forgets the place in the queue if no exchange proved it for a TTL. It may have expired, and
// the new answer may be about a new place. Called with a.mu held.
func (a *attempt) doubt() {
	if now := history.Now(); a.queued != 0 && now-a.proof >= int64(a.ttl) {
		a.queued = now
	}
}

// proved takes in the answer to a renewal sent at sent. token is that of a reported grant, or 0.
// The place may belong to an Acquire without an answer.
func (a *attempt) proved(sent int64, token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubt()
	a.proof = max(a.proof, sent)
	if token != 0 {
		a.token, a.from = token, sent
	}
}

// queuedNow notes that the store has reported the place in the queue.
func (a *attempt) queuedNow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queued == 0 {
		a.queued = history.Now()
		a.loop.waiting.Store(a.call)
	}
}

// left notes that the place in the queue ended at at. If no exchange proved it for a TTL, it may
// have expired, and the promise of order starts again. Otherwise the place is remembered, and the
// store must keep its promise.
func (a *attempt) left(at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at-a.proof >= int64(a.ttl) {
		a.queued = 0
	}
}

// since returns the time from which the grant with this token counts: when the exchange was sent
// that brought the grant. For a pushed grant it is the latest exchange that proved the place in the
// queue.
func (a *attempt) since(token uint64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == token {
		return a.from
	}
	return a.proof
}

// leaseToken returns the token of the call's lease, which may be one of the block of its grant's.
func (a *attempt) leaseToken(grant uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.granted != 0 {
		return a.granted
	}
	return grant
}

// lapsed returns when the client stops trusting the lease, if only time ends it: a proof counts for
// the TTL less a tenth.
func (a *attempt) lapsed() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proof + int64(a.ttl-a.ttl/10)
}

// queuedSince returns when the store reported the place that the attempt has had until now, or 0.
// If no exchange has proved the place for a TTL, it may have expired, and there is no promise of
// order.
func (a *attempt) queuedSince() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if history.Now()-a.proof >= int64(a.ttl) {
		return 0
	}
	return a.queued
}

// unclear reports whether the store may have done more than it reported.
func (a *attempt) unclear() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// refusal reports whether an error of a store is an answer: nothing was taken.
func refusal(err error) bool {
	for _, e := range []error{driver.ErrKind, driver.ErrInvalid, driver.ErrRefused, driver.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
