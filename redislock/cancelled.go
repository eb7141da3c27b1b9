package redislock

import "context"

// cancelled are the names of requests that were cancelled lately, by id. A cancellation may overtake its request,
// which then stands in line all the same, and is handed the lock in its turn: the session gives it back at once.
//
// The oldest are forgotten first, half of them at a time: a request seldom arrives long after its cancellation, and
// nobody has to look through them.
type cancelled struct{ recent, older map[string]string }

// mostCancelled is how many are remembered, of which mostCancelled/2 are the latest at any time.
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

// take forgets a request, and reports whether it was remembered.
func (c *cancelled) take(id string) (name string, ok bool) {
	for _, m := range []map[string]string{c.recent, c.older} {
		if n, known := m[id]; known {
			name, ok = n, true
			delete(m, id)
		}
	}
	return name, ok
}

// remembers notes that a request is being cancelled.
func (s *session) remembers(id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled.add(id, name)
}

// unwanted gives back a lock that was handed over to a request after its cancellation: by another cancellation,
// which ends what is on record for the id, and nothing if the message was forged. There is one for each
// cancelled request at most. Called with s.mu held.
func (s *session) unwanted(id string, token uint64) {
	if token <= 1 || s.closed {
		return
	}
	name, ok := s.cancelled.take(id)
	if !ok {
		return
	}
	s.flights.Add(1)
	go func() {
		defer s.flights.Done()
		ctx, cancel := context.WithTimeout(s.b.life, sharedFor)
		defer cancel()
		call := newCall().name(s.b.prefix, name, "lzmt").str(id).end()
		_, _ = s.b.run(ctx, s.b.scripts.cancel, call) // else the grant runs out by itself
	}()
}
