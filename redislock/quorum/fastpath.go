package quorum

import (
	"time"
)

// The servers of an uncontended name are asked in two steps: first a majority, in the name's order.
// So a session remembers which names were contended.

const (
	afterContention = -8   // streak after contention: as many free grants make up for it
	mostNames       = 4096 // names; at more, all are forgotten
)

// noteContended records that another request holds or waits for the name, and how long the servers
// took.
func (s *session) noteContended(name string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.streak[name]; !known && len(s.streak) >= mostNames {
		clear(s.streak)
	}
	s.streak[name] = afterContention
	s.pace = (7*s.pace + min(took, grace)) / 8
}

// noteFree records that a request was granted at once, and how long that took.
func (s *session) noteFree(name string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, known := s.streak[name]; known {
		if n++; n < 0 {
			s.streak[name] = n
		} else {
			delete(s.streak, name)
		}
	}
	s.pace = (7*s.pace + min(took, grace)) / 8
}

// patience returns how long to wait for a majority before the other servers are asked.
func (s *session) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(2*time.Millisecond, 4*s.pace)
}

// leisure returns how long to wait for servers beyond a majority before they count as silent.
// Places in the queue are then set without them.
func (s *session) leisure() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(grace, 20*s.pace), 10*grace)
}

// split returns which servers to ask at once, and which to hold back.
func (s *session) split(r *request) (first, rest []*endpoint) {
	s.mu.Lock()
	_, contended := s.streak[r.driver.Name]
	contended = contended || r.driver.MinHold > 0 // a minimum hold must not depend on a bare majority
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.order {
		// A grant or place from an earlier exchange must be proven again.
		if vote := &r.votes[i]; contended || vote.sent > 0 {
			return s.endpoints, nil
		}
	}
	now := s.clock.now().Microseconds()
	var unfit []*endpoint
	for _, i := range r.order {
		p := s.endpoints[i]
		_, err := p.session(now)
		switch {
		case err != nil || p.slow.Load() != 0:
			unfit = append(unfit, p)
		case len(first) < r.need:
			first = append(first, p)
		default:
			rest = append(rest, p)
		}
	}
	if len(first) < r.need {
		return s.endpoints, nil
	}
	return first, append(rest, unfit...)
}
