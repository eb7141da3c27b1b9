package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/waiters"
)

// request is what the session knows about a request: from before it is sent, so that no hand-over
// can overtake it, until it has ended.
type request struct {
	name   string
	token  uint64        // of its grant
	early  uint64        // a token that was pushed before the answer
	wake   waiters.Slot  // of a waiter
	seen   time.Duration // when it was last sent, or its renewal was
	proved time.Duration // when that exchange was sent that last proved its grant
	asked  uint64        // the number of the exchange that last asked for it, in this session
	group  bool          // shared or permits: refresh.lua renews it
	own    bool          // its lease may be shorter than the TTL
	waits  bool          // the caller has wake
	queued bool          // it has a place in the queue of another library while it waits; see beat.go
	nudge  bool          // a push before the answer said to ask again
	calls  bool          // Request.CallBack

	mode    driver.Mode // 0: of a latch, or adopted
	rw      bool        // Request.ReadWrite
	adopted bool        // from another session
	held    uint64      // the token that it had at the last look; see holders.go
	listens uint64      // the token of the grant for which the session listens

	confirms bool // replicas are being asked to confirm its token
}

// register adds a request that is about to be sent. The caller must call flights.Done after the
// answer. again is true if the session knows the request already: it may have a place in the queue.
// want is the token that it proposes.
func (s *session) register(id string, a request, want uint64) (number uint64, again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false, driver.ErrClosed
	}
	if s.isUndoing(id) {
		return 0, false, fmt.Errorf("%w: an earlier exchange of this request is being cancelled", driver.ErrUnavailable)
	}
	old, again := s.requests[id]
	if again {
		// A value in the channel belongs to an earlier exchange. The answer to this one is newer.
		a.wake = old.wake
		a.wake.Drain()
		a.group, a.own = a.group || old.group, a.own || old.own
	}
	s.largest = max(s.largest, want)
	s.asked++
	a.seen, a.asked = s.b.now(), s.asked
	s.requests[id] = a
	s.flights.Add(1)
	return a.asked, again, nil
}

// adopts adds h, which is about to be adopted as id, and reports whether id was new. The mode of h
// is unknown: refresh.lua renews every mode. The caller must call flights.Done after the answer.
func (s *session) adopts(id string, h driver.Hold) (fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, driver.ErrClosed
	}
	s.flights.Add(1)
	if _, known := s.requests[id]; known {
		return false, nil
	}
	s.requests[id] = request{name: h.Name, token: h.Token, group: true, adopted: true, seen: s.b.now()}
	return true, nil
}

// holds records that id was granted. It returns false if id was cancelled. A lease that an exchange began
// is proved by when that was sent; 0: it may have begun earlier, or is an old one.
func (s *session) holds(id string, token uint64, sent time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.largest = max(s.largest, token)
	a, ok := s.requests[id]
	if ok {
		a.token, a.wake, a.waits, a.nudge, a.early = token, nil, false, false, 0
		a.proved = max(a.proved, sent)
		s.requests[id] = a
	}
	return ok
}

// proves records that a renewal that was sent at sent has renewed grants, except those in but. Both are
// indexes of holds, in the same order.
func (s *session) proves(holds []driver.Hold, of, but []int, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range of {
		if len(but) > 0 && but[0] == j {
			but = but[1:]
		} else if a, ok := s.requests[holds[j].ID]; ok && a.token == holds[j].Token {
			a.proved = sent
			s.requests[holds[j].ID] = a
		}
	}
}

// waits returns the wake-up channel of a request that was not granted. last is the latest token of
// the name in that answer. It returns false if id was cancelled.
func (s *session) waits(id string, last uint64) (<-chan uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.requests[id]
	if !ok {
		return nil, false
	}
	if a.wake == nil {
		a.wake = waiters.NewSlot()
	}
	s.awaits(id, &a, last)
	return a.wake, true
}

// awaits records that a has a place in the queue. The caller holds s.mu.
func (s *session) awaits(id string, a *request, last uint64) {
	a.waits, a.token = true, 0
	// A token up to last belongs to a grant that had ended when the store answered.
	if a.early > last {
		s.handOver(id, a, a.early)
		a.token = a.early
	} else if a.nudge {
		a.wake.Put(0)
	}
	a.early, a.nudge = last, false
	s.requests[id] = *a
}

// offers records that a grant is about to be yielded. The name may be handed back before the answer
// to that comes.
func (s *session) offers(id string, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.requests[id]
	if !ok {
		return
	}
	a.wake.Drain()
	a.token, a.early, a.waits, a.nudge = 0, token, false, false
	s.requests[id] = a
}

// unregister forgets a request that has ended.
func (s *session) unregister(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.requests[id]; ok {
		a.wake.Drain() // no wake-up after Cancel
		delete(s.requests, id)
	}
}

// ended forgets a request whose grant with this token has ended. The answer may be late: the name may
// have been handed back to the request since, with another token, or the request may wait again.
func (s *session) ended(id string, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.requests[id]; ok && a.token == token {
		a.wake.Drain()
		delete(s.requests, id)
	}
}

// refusedAt forgets a request that the exchange with this number did not bring a place or a grant.
// Another exchange about it may have begun since, or have brought a grant or a place: a quorum asks
// again before a slow server has answered, and its exchanges overtake each other. Close must then
// know the request. last is as in waits.
func (s *session) refusedAt(id string, number, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a, ok := s.requests[id]; {
	case !ok || a.asked != number || a.token != 0:
	case a.wake != nil: // it has a place, which a refusal does not end
		s.awaits(id, &a, last)
	default:
		delete(s.requests, id)
	}
}

func (s *session) regroup(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.requests[id]; ok {
		a.group = true
		s.requests[id] = a
	}
}

// message handles a message from the session's channel.
func (s *session) message(payload string) {
	id, text, ok := strings.Cut(payload, " ")
	if s.hooks.Claimed != nil && strings.HasPrefix(text, "c ") {
		rank, by, _ := strings.Cut(text[2:], " ")
		if n, err := strconv.Atoi(rank); err == nil {
			s.hooks.Claimed(id, n, by)
		}
		return
	}
	if ok && text == "w" {
		s.calledBack(id)
		return
	}
	text, clock, clocked := strings.Cut(text, " ")
	token, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || token > maxToken || clocked && !s.counts(clock) {
		return // not one of our messages
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.requests[id]
	if ok && token <= s.cancelledUpTo(id) {
		token = 0 // the caller asks, see MemberSession.Ask
	}
	switch {
	case !ok:
		s.unwanted(id, token)
	case token != 0 && token <= a.early:
	case a.doubts(token):
		a.wake.Drain()
		a.token, a.nudge = 0, !a.waits
		if a.waits {
			a.wake.Put(0)
		}
		s.requests[id] = a
		s.pushed(id)
	case a.waits:
		s.handOver(id, &a, token)
		if token != 0 {
			a.token = token
			s.requests[id] = a
		}
		s.pushed(id)
	case a.token == 0: // before the answer
		a.early, a.nudge = max(a.early, token), a.nudge || token == 0
		s.requests[id] = a
	}
}

// counts reports whether a push from a member's server, at that time of its clock, is valid.
func (s *session) counts(clock string) bool {
	n, err := strconv.ParseInt(clock, 10, 64)
	return err == nil && (s.hooks.counts == nil || s.hooks.counts(micros(n)))
}

// doubts reports whether the waiter must ask the store about a push of token. A forger may have
// sent it: any client that may publish on the session's channel and knows the request. No server's
// clock makes a token a day ahead of what is known here, and one wait ends with one grant.
func (a *request) doubts(token uint64) bool {
	day := uint64((24 * time.Hour).Microseconds())
	known := max(a.early, a.token, uint64(max(time.Now().UnixMicro(), 0)))
	return token > known+day || a.waits && token != 0 && a.token != 0 && token != a.token
}

// again wakes every waiter, because messages may have been missed.
func (s *session) again() { s.againIn("") }

// holder returns the session's ID as a grant of req records it.
func (s *session) holder(ctx context.Context, req *driver.Request) (string, error) {
	if !req.CallBack {
		return s.id, nil
	}
	id, err := s.listening(ctx, req.Name, true)
	return callsBack + id, err
}

// calledBack passes on that somebody waits for the grant of a request: see common.lua.
func (s *session) calledBack(id string) {
	s.mu.Lock()
	a := s.requests[id]
	s.mu.Unlock()
	if a.calls && s.wanted != nil {
		s.wanted(a.name, id)
	}
}

// againIn is again for the names with one hash tag, or for all with "".
func (s *session) againIn(tag string) {
	var calls []string
	defer func() {
		for _, id := range calls {
			s.calledBack(id)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, a := range s.requests {
		if tag != "" && s.b.tagOf(a.name) != tag {
			continue
		}
		if a.calls {
			calls = append(calls, id)
		}
		if a.waits {
			a.wake.Put(0)
			s.pushed(id)
		} else if a.token == 0 {
			a.nudge = true
			s.requests[id] = a
		}
	}
}

func (s *session) pushed(id string) {
	if s.hooks.Pushed != nil {
		s.hooks.Pushed(id)
	}
}
