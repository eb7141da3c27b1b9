package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// cancelled holds the names of recently cancelled requests, by ID. A cancellation may overtake its
// request. The request then still gets a place in the queue and later the lock, which the session
// gives back at once.
//
// The oldest are forgotten first, half of them at a time. A request seldom arrives long after its
// cancellation, and halves need no search.
type cancelled struct{ recent, older map[string]string }

// mostCancelled bounds how many are remembered. The latest mostCancelled/2 are always among them.
const mostCancelled = 4096

func (c *cancelled) add(id, name string) {
	if len(c.recent) >= mostCancelled/2 {
		clear(c.older)
		c.recent, c.older = c.older, c.recent
	}
	if c.recent == nil {
		c.recent = map[string]string{}
	}
	c.recent[id] = name
}

// take removes a request, and reports whether it was there.
func (c *cancelled) take(id string) (name string, ok bool) {
	for _, m := range []map[string]string{c.recent, c.older} {
		if n, known := m[id]; known {
			name, ok = n, true
			delete(m, id)
		}
	}
	return name, ok
}

// remembers records that a request is being cancelled.
func (s *session) remembers(id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled.add(id, name)
}

// unwanted gives back a lock that a request got after its cancellation. It sends another
// cancellation, which does nothing if the message was forged. Each cancelled request causes at most
// one. The caller holds s.mu.
func (s *session) unwanted(id string, token uint64) {
	if token <= 1 || s.closed {
		return
	}
	name, ok := s.cancelled.take(id)
	if !ok {
		return
	}
	s.flights.Add(1)
	s.countUndoing(id, 1)
	go func() {
		defer s.flights.Done()
		ctx, cancel := context.WithTimeout(s.b.life, sharedFor)
		defer cancel()
		_ = s.takeAway(ctx, name, id) // if it fails, the grant expires
	}()
}

// undo cancels a request that was cancelled already, because the store may have received it after
// its cancellation.
func (s *session) undo(name, id string) {
	ctx, cancel := context.WithTimeout(s.b.life, sharedFor)
	defer cancel()
	_, _ = s.cancelByItself(ctx, name, id) // if it fails, the grant expires
}

// ensureCancelled cancels a request that has ended here: it was cancelled while an exchange of it was
// under way, or its grant is taken back. If that fails, the outcome is unknown, and the session cancels
// it again by itself, because its caller may not.
func (s *session) ensureCancelled(ctx context.Context, name, id string) error {
	asked, err := s.cancelByItself(ctx, name, id)
	if asked {
		return fmt.Errorf("%w: the request is asked again", driver.ErrUncertain)
	}
	if err == nil {
		return nil
	}
	r := requester{s, name, id}
	r.left()
	r.over(false)
	// Whatever became of the cancellation, the request may have been granted.
	return fmt.Errorf("%w: %v", driver.ErrUncertain, err)
}

// undoing is about cancellations of a request that a member's session sends by itself.
type undoing struct {
	n     int           // how many are under way
	limit uint64        // of the tokens that they end
	late  bool          // one had no answer, and may arrive at any time
	seen  time.Duration // when the last one ended
}

// cancelByItself cancels a request, unless its caller asks again. A quorum may do that at a member,
// after a cancellation of its own. This one could then end the later grant. So the member's session
// refuses the request while it is under way. If no answer comes, it may arrive at any time: a grant
// then needs a token above its limit.
func (s *session) cancelByItself(ctx context.Context, name, id string) (asked bool, err error) {
	s.mu.Lock()
	if _, asked = s.requests[id]; asked {
		s.mu.Unlock()
		return true, nil
	}
	s.countUndoing(id, 1)
	s.mu.Unlock()
	s.unregister(id)
	s.remembers(id, name)
	return false, s.takeAway(ctx, name, id)
}

// takeAway is the exchange of a cancellation that the session sends by itself, and has counted. A member
// says which larger token the request has, which then is the next limit. No push says so: it may be forged.
func (s *session) takeAway(ctx context.Context, name, id string) (err error) {
	if s.b.member == nil {
		return s.cancelOnce(ctx, name, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.undoing[id]
	for limit := max(s.largest, 1); limit != 0 && err == nil; {
		u.limit = max(u.limit, limit)
		s.mu.Unlock()
		limit, err = s.endUpTo(ctx, name, id, limit)
		s.mu.Lock()
	}
	u.late = u.late || err != nil
	s.countUndoing(id, -1)
	return err
}

// endUpTo takes a request out of the queue, and ends its grant if its token is at most limit. It
// returns the token of a grant that stays, or 0.
func (s *session) endUpTo(ctx context.Context, name, id string, limit uint64) (uint64, error) {
	c := s.b.keys(name, "lzmt").str(id).end().padded(min(limit, maxToken), 16).end()
	v, err := s.b.run(ctx, s.b.scripts.cancel, c)
	if err == nil && (v.Kind != Int || v.Int < 0) {
		err = strange(v)
	}
	if err != nil {
		return 0, err
	}
	return uint64(v.Int), nil
}

// countUndoing adds n to the cancellations of a request that are under way. The caller holds s.mu.
func (s *session) countUndoing(id string, n int) {
	if s.b.member == nil { // no other caller asks again
		return
	}
	if s.undoing == nil {
		s.undoing = map[string]*undoing{}
	}
	u := s.undoing[id]
	if u == nil {
		u = new(undoing)
		s.undoing[id] = u
	}
	u.n, u.seen = u.n+n, s.b.now()
	if u.n == 0 && !u.late {
		delete(s.undoing, id)
	}
}

// isUndoing reports whether the session is cancelling a request by itself. The caller holds s.mu.
func (s *session) isUndoing(id string) bool {
	u := s.undoing[id]
	return u != nil && u.n > 0
}

// cancelledUpTo returns the largest token of a grant of id that a late cancellation may end, or 0. The
// caller holds s.mu.
func (s *session) cancelledUpTo(id string) uint64 {
	if u := s.undoing[id]; u != nil {
		return max(u.limit, s.forgotten)
	}
	return s.forgotten
}
