package redislock

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A mutex that nobody contends for is taken and released by two lean scripts, which leave
// everything else to the full ones at the price of a second exchange. So a session
// remembers which names were contended for lately, and goes to the full ones with them.

const (
	wary    = 4     // a name counts as contended for until so many grants came at once
	wariest = 10000 // names are remembered; then all are forgotten
)

// calm reports whether the mutex is probably free.
func (s *session) calm(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.busy) == 0 || s.busy[name] == 0
}

// contended notes that somebody else holds or waits for the name.
func (s *session) contended(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == nil || len(s.busy) >= wariest {
		s.busy = map[string]int8{}
	}
	s.busy[name] = wary
}

// quieter notes that the name was free.
func (s *session) quieter(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.busy[name]; n > 1 {
		s.busy[name] = n - 1
	} else if n == 1 {
		delete(s.busy, name)
	}
}

// simple reports whether h is an exclusive grant that cannot have run out yet, for all that
// this session knows, and that nobody probably waits for. drop.lua does not look at the clock.
func (s *session) simple(h driver.Hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asks[h.ID]
	return ok && !a.group && time.Since(s.began)-a.seen < s.ttl && s.busy[h.Name] == 0
}
