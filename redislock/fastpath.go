package redislock

import "github.com/holdfast-lock/holdfast/driver"

// Two fast-path scripts, take.lua and drop.lua, take and release a mutex without contention. They
// leave every other case to the full scripts, at the price of a second exchange. So a session
// counts for each name how often in a row it was free, and tries the fast path accordingly.

const (
	maxStreak       = 3    // highest streak
	afterContention = -8   // streak after contention: as many free grants make up for it
	tryAfter        = 2    // streak from which take.lua is tried
	mostNames       = 4096 // names; at more, all are forgotten
)

// canTake reports whether the mutex is probably free, with a record at the server.
func (s *session) canTake(name string) bool {
	if s.b.format != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streak[name] >= tryAfter
}

// noteContended records that another client holds or waits for the name.
func (s *session) noteContended(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setStreak(name, afterContention)
}

// setStreak is called with s.mu held.
func (s *session) setStreak(name string, n int8) {
	if _, known := s.streak[name]; !known && len(s.streak) >= mostNames {
		clear(s.streak)
	}
	s.streak[name] = n
}

// noteFree records that the name was free.
func (s *session) noteFree(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.streak[name]; n < maxStreak {
		s.setStreak(name, n+1)
	}
}

// canDrop reports whether h is an exclusive grant that this session knows to be unexpired, and that
// has probably no waiter. drop.lua does not check the clock.
func (s *session) canDrop(h driver.Hold) bool {
	if s.b.format != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.requests[h.ID]
	return ok && !a.group && !a.own && a.proved > 0 && s.b.now()-a.proved < s.ttl && s.streak[h.Name] > 0
}
