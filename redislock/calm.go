package redislock

import "github.com/holdfast-lock/holdfast/driver"

// A mutex that nobody contends for is taken and released by two lean scripts, which leave
// everything else to the full ones at the price of a second exchange. So a session
// remembers which names it was granted at once, and tries the lean ones with them.

const (
	calmest  = 3    // how much calm is remembered
	restless = -8   // how much contention: so many grants at once outweigh it
	calmFrom = 2    // grants at once in a row, before take.lua is tried
	mostCalm = 4096 // names are remembered; then all are forgotten
)

// calm reports whether the mutex is probably free, and known to the server.
func (s *session) calm(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quiet[name] >= calmFrom
}

// contended notes that somebody else holds or waits for the name.
func (s *session) contended(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(name, restless)
}

// remember is called with s.mu held.
func (s *session) remember(name string, calm int8) {
	if _, known := s.quiet[name]; !known && len(s.quiet) >= mostCalm {
		clear(s.quiet)
	}
	s.quiet[name] = calm
}

// atOnce notes that the name was free.
func (s *session) atOnce(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.quiet[name]; n < calmest {
		s.remember(name, n+1)
	}
}

// simple reports whether h is an exclusive grant that cannot have run out yet, for all that
// this session knows, and that nobody probably waits for. drop.lua does not look at the clock.
func (s *session) simple(h driver.Hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asks[h.ID]
	return ok && !a.group && s.b.now()-a.seen < s.ttl && s.quiet[h.Name] > 0
}
