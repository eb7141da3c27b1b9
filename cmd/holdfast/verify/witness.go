package verify

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/history"
)

// witness stands between one client and its store, and knows what the client's calls do not tell: when
// the exchanges were sent that prove places in line and leases. It reads the clock before an exchange
// is sent, so that no proof is dated later than the store can have begun to count.
type witness struct {
	driver.Backend
	rec    *history.Recorder
	client string

	mu       sync.Mutex
	attempts map[string]*attempt // by the ID of the request at the store
}

func newWitness(b driver.Backend, rec *history.Recorder, client string) *witness {
	return &witness{Backend: b, rec: rec, client: client, attempts: map[string]*attempt{}}
}

// Open wraps the session.
func (w *witness) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := w.Backend.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &witnessed{s, w}, nil
}

func (w *witness) attempt(id string) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attempts[id]
}

// rename makes id the one by which the store knows a.
func (w *witness) rename(a *attempt, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, a.place)
	if a.place = id; id != "" {
		w.attempts[id] = a
	}
}

// waiting is the client's Observer: the store has told that a request stands in line.
func (w *witness) waiting(news holdfast.Waiting) {
	if a := w.attempt(news.ID); a != nil {
		a.stands()
	}
}

type attemptKey struct{}

// witnessed is a session whose exchanges are watched.
type witnessed struct {
	driver.Session
	w *witness
}

func (s *witnessed) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return s.Session.Acquire(ctx, req)
	}
	if a.place != req.ID {
		if a.place != "" { // the client has another session now, and left the line with the one before
			a.left(history.Now())
		}
		s.w.rename(a, req.ID)
	}
	sent := history.Now()
	reply, err := s.Session.Acquire(ctx, req)
	a.answered(sent-int64(reply.Stale), s.TTL(), req.Wait, reply.Token, err)
	return reply, err
}

func (s *witnessed) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
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
		a := s.w.attempt(h.ID)
		if a == nil { // released meanwhile, or given up
			continue
		}
		switch ch := states[i]; {
		case ch.State == driver.Unknown:
		case ch.State == driver.Gone:
			if h.Token == 0 {
				a.left(at)
			}
		case h.Token != 0:
			a.proved(sent, 0)
			s.w.rec.Record(history.Event{T: at, Kind: history.Renewed, Client: s.w.client, ID: a.id, Name: h.Name, Token: h.Token, From: sent})
		default:
			a.proved(sent, ch.Token)
		}
	}
	return changes, nil
}

// attempt is one call that asks for a lock, and what came of it.
type attempt struct {
	id    string // in the history
	place string // the ID of its request at the store; only the call itself changes it
	loop  *loop
	call  int64

	mu     sync.Mutex
	ttl    time.Duration // as the session has it
	proof  int64         // when the latest exchange was sent that proved the place in line, or the lease
	token  uint64        // a grant that an answer told of
	from   int64         // when the exchange of that answer was sent
	queued int64         // when it was told of the place that it has
	open   bool          // the store may have done more than it said
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

// doubt forgets the place in line if nothing had proved it for a TTL: it may have run out, and the answer that comes now
// be about a new one. Called with a.mu held.
func (a *attempt) doubt() {
	if now := history.Now(); a.queued != 0 && now-a.proof >= int64(a.ttl) {
		a.queued = now
	}
}

// proved takes in the answer to a renewal sent at sent. token is of a grant that it told of, or 0. The place may be one
// that an Acquire made which was not answered.
func (a *attempt) proved(sent int64, token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubt()
	a.proof = max(a.proof, sent)
	if token != 0 {
		a.token, a.from = token, sent
	}
}

// stands notes that the store has told of the place in line.
func (a *attempt) stands() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queued == 0 {
		a.queued = history.Now()
		a.loop.waiting.Store(a.call)
	}
}

// left notes, at the time at, that the place in line is no more. If nothing had proved it for a TTL, it
// may have run out, and what the line promises begins anew; else the place is remembered, and the
// store has to answer for it.
func (a *attempt) left(at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at-a.proof >= int64(a.ttl) {
		a.queued = 0
	}
}

// since is when the exchange was sent from which the grant with this token counts: that of the answer
// which told of it; if it was pushed to a waiter, the latest that proved the place in line.
func (a *attempt) since(token uint64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == token {
		return a.from
	}
	return a.proof
}

// lapsed is since when the client says that the lease is over, if nothing ended it but time: it trusts
// a proof for the TTL less a tenth.
func (a *attempt) lapsed() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proof + int64(a.ttl-a.ttl/10)
}

// stood is when the attempt was told of the place in line that it had until now, or 0. If nothing has proved the place
// for a TTL, it may have run out before now, and the line owes nothing to it.
func (a *attempt) stood() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if history.Now()-a.proof >= int64(a.ttl) {
		return 0
	}
	return a.queued
}

// unclear reports whether the store may have done more than it said.
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
