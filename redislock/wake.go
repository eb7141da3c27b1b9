package redislock

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// ask is a request as its session knows it: from before it is sent, so that no hand-over
// can overtake it, until it has ended.
type ask struct {
	name  string
	token uint64        // of its grant
	early uint64        // a token that was pushed before the answer to the request
	wake  chan uint64   // of a request in line
	seen  time.Duration // when it was asked for or renewed
	group bool          // shared or permits: renewed by another script
	waits bool          // wake is in the caller's hands
	nudge bool          // asking again was advised before the answer to the request

	confirms bool // replicas are being asked about its token
}

// enter notes a request that is about to be sent. flights.Done has to be called when it has been answered.
// again says that the session knows it already: it may have a place in line.
func (s *session) enter(id string, a ask) (again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, driver.ErrClosed
	}
	old, again := s.asks[id]
	if again {
		// What lies in the channel belongs to an earlier exchange. The answer to this one
		// knows better.
		if a.wake = old.wake; a.wake != nil {
			select {
			case <-a.wake:
			default:
			}
		}
		a.group = a.group || old.group
	}
	a.seen = s.b.now()
	s.asks[id] = a
	s.flights.Add(1)
	return again, nil
}

// adopts notes that h is about to be adopted as id, and reports whether id was unknown. Of what
// mode h is, is not known; as one of a group it is renewed right whatever it is. flights.Done has to be called
// after the answer.
func (s *session) adopts(id string, h driver.Hold) (fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, driver.ErrClosed
	}
	s.flights.Add(1)
	if _, known := s.asks[id]; known {
		return false, nil
	}
	s.asks[id] = ask{name: h.Name, token: h.Token, group: true, seen: s.b.now()}
	return true, nil
}

// holds notes that id was granted. It reports false if id has been cancelled.
func (s *session) holds(id string, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asks[id]
	if ok {
		a.token, a.wake, a.waits, a.nudge, a.early = token, nil, false, false, 0
		s.asks[id] = a
	}
	return ok
}

// waits returns the channel of a request that the store answered with not yet, when last was
// the latest token of the name. It reports false if id has been cancelled.
func (s *session) waits(id string, last uint64) (<-chan uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asks[id]
	if !ok {
		return nil, false
	}
	if a.wake == nil {
		a.wake = make(chan uint64, 1)
	}
	a.waits, a.token = true, 0
	// A token up to last belongs to a grant that had ended when the store answered.
	if a.early > last {
		s.handOver(id, &a, a.early)
		a.token = a.early
	} else if a.nudge {
		a.wake <- 0
	}
	a.early, a.nudge = last, false
	s.asks[id] = a
	return a.wake, true
}

// offers notes that a grant is about to be given to another, and may be handed over again before
// the answer to that is here.
func (s *session) offers(id string, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asks[id]
	if !ok {
		return
	}
	if a.wake != nil {
		select {
		case <-a.wake:
		default:
		}
	}
	a.token, a.early, a.waits, a.nudge = 0, token, false, false
	s.asks[id] = a
}

// leave forgets a request that has ended.
func (s *session) leave(id string) {
	s.mu.Lock()
	if a, ok := s.asks[id]; ok {
		if a.wake != nil {
			select { // no wake-up after Cancel
			case <-a.wake:
			default:
			}
		}
		delete(s.asks, id)
	}
	s.mu.Unlock()
}

func (s *session) regroup(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.asks[id]; ok {
		a.group = true
		s.asks[id] = a
	}
}

// message takes what was published on the session's channel.
func (s *session) message(payload string) {
	id, text, ok := strings.Cut(payload, " ")
	if s.hooks.Claimed != nil && strings.HasPrefix(text, "c ") {
		rank, by, _ := strings.Cut(text[2:], " ")
		if n, err := strconv.Atoi(rank); err == nil {
			s.hooks.Claimed(id, n, by)
		}
		return
	}
	text, clock, clocked := strings.Cut(text, " ")
	token, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || token > maxToken || clocked && !s.counts(clock) {
		return // not ours
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asks[id]
	switch {
	case !ok:
		s.unwanted(id, token)
	case token != 0 && token <= a.early:
	case a.doubts(token):
		select {
		case <-a.wake:
		default:
		}
		a.token, a.nudge = 0, !a.waits
		if a.waits {
			a.push(0)
		}
		s.asks[id] = a
		s.pushed(id)
	case a.waits:
		s.handOver(id, &a, token)
		if token != 0 {
			a.token = token
			s.asks[id] = a
		}
		s.pushed(id)
	case a.token == 0: // before the answer
		a.early, a.nudge = max(a.early, token), a.nudge || token == 0
		s.asks[id] = a
	}
}

// counts reports whether what a member's server pushed, at that time of its clock, counts.
func (s *session) counts(clock string) bool {
	n, err := strconv.ParseInt(clock, 10, 64)
	return err == nil && (s.hooks.counts == nil || s.hooks.counts(micros(n)))
}

// doubts reports whether the waiter has to ask what a push of token is about. Anybody may have sent it who may
// publish on the session's channel and has heard of the request. No server's clock has made a token that is a day
// ahead of what is known of it, and one wait ends with one grant.
func (a *ask) doubts(token uint64) bool {
	day := uint64((24 * time.Hour).Microseconds())
	known := max(a.early, a.token, uint64(max(time.Now().UnixMicro(), 0)))
	return token > known+day || a.waits && token != 0 && a.token != 0 && token != a.token
}

// push leaves v in the channel, unless a token lies there already.
func (a *ask) push(v uint64) {
	select {
	case old := <-a.wake:
		v = max(v, old)
	default:
	}
	a.wake <- v // there is room: only push sends, under s.mu
}

// again tells every waiter to ask again, after messages may have been missed.
func (s *session) again() { s.againIn(-1) }

// againIn is again for one shard, or with -1 for all.
func (s *session) againIn(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, a := range s.asks {
		if shard >= 0 && shardOf(a.name) != shard {
			continue
		}
		if a.waits {
			a.push(0)
			s.pushed(id)
		} else if a.token == 0 {
			a.nudge = true
			s.asks[id] = a
		}
	}
}

func (s *session) pushed(id string) {
	if s.hooks.Pushed != nil {
		s.hooks.Pushed(id)
	}
}
