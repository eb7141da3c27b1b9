package redislock

import "context"

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
	go func() {
		defer s.flights.Done()
		ctx, cancel := context.WithTimeout(s.b.life, sharedFor)
		defer cancel()
		call := s.b.keys(name, "lzmt").str(id).end()
		_, _ = s.b.run(ctx, s.b.scripts.cancel, call) // if it fails, the grant expires
	}()
}

// undo cancels a request that was cancelled already, because the store may have received it after
// its cancellation.
func (s *session) undo(name, id string) {
	s.mu.Lock()
	_, asked := s.requests[id]
	s.mu.Unlock()
	if asked {
		return // the caller asks again
	}
	ctx, cancel := context.WithTimeout(s.b.life, sharedFor)
	defer cancel()
	_ = s.Cancel(ctx, name, id) // if it fails, the grant expires
}

// ensureCancelled cancels a request that no caller cancels any more. If that gets no answer, the
// session cancels it again by itself.
func (s *session) ensureCancelled(ctx context.Context, name, id string) error {
	err := s.Cancel(ctx, name, id)
	if err != nil {
		r := requester{s, name, id}
		r.left()
		r.over(false)
	}
	return err
}
