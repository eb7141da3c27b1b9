package quorum

import (
	"time"
)

// A name that nobody contends for is asked of a majority first, as its order says. So a session
// remembers which names were contended for.

const (
	restless = -8   // how much contention is remembered: so many grants at once outweigh it
	mostCalm = 4096 // names are remembered; then all are forgotten
)

// contended notes that somebody else holds or waits for the name, and how long the servers took.
func (s *session) contended(name string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.restless[name]; !known && len(s.restless) >= mostCalm {
		clear(s.restless)
	}
	s.restless[name] = restless
	s.pace = (7*s.pace + min(took, grace)) / 8
}

// quick notes that a request was granted at once, and how long that took.
func (s *session) quick(name string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, known := s.restless[name]; known {
		if n++; n < 0 {
			s.restless[name] = n
		} else {
			delete(s.restless, name)
		}
	}
	s.pace = (7*s.pace + min(took, grace)) / 8
}

// patience is how long a majority is waited for before the other servers are asked.
func (s *session) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(2*time.Millisecond, 4*s.pace)
}

// leisure is how long servers are waited for that are not needed for a majority, before they are taken for
// silent: places in line are then set right without them.
func (s *session) leisure() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(grace, 20*s.pace), 10*grace)
}

// split returns which servers to ask at once, and which to hold back.
func (s *session) split(r *request) (first, rest []*post) {
	s.mu.Lock()
	_, restless := s.restless[r.driver.Name]
	restless = restless || r.driver.MinHold > 0 // nobody extends that to the others later
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.order {
		// What it may have already has to be proven again.
		if seat := &r.seats[i]; restless || seat.sent > 0 {
			return s.posts, nil
		}
	}
	now := s.clock.now().Microseconds()
	var unfit []*post
	for _, i := range r.order {
		p := s.posts[i]
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
		return s.posts, nil
	}
	return first, append(rest, unfit...)
}
