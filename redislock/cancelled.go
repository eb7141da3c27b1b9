package redislock

import (
	"context"
	"time"
)

// cancelled are requests that were cancelled, by id. A cancellation may overtake its request, which then stands in line
// all the same, and is handed the lock in its turn: the session gives it back at once.
type cancelled map[string]struct {
	name string
	at   time.Duration
}

// mostCancelled is how many are remembered.
const mostCancelled = 4096

// remembers notes that a request is being cancelled.
func (s *session) remembers(id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.b.now()
	if s.cancelled == nil {
		s.cancelled = cancelled{}
	}
	if len(s.cancelled) >= mostCancelled {
		for id, c := range s.cancelled {
			if now-c.at > s.ttl { // a place lasts no longer
				delete(s.cancelled, id)
			}
		}
		if len(s.cancelled) >= mostCancelled {
			return
		}
	}
	s.cancelled[id] = struct {
		name string
		at   time.Duration
	}{name, now}
}

// unwanted gives back a lock that was handed over to a request after its cancellation: by another cancellation,
// which ends what is on record for the id, and nothing if the message was forged. There is one for each
// cancelled request at most. Called with s.mu held.
func (s *session) unwanted(id string, token uint64) {
	c, ok := s.cancelled[id]
	if !ok || token <= 1 || s.closed {
		return
	}
	delete(s.cancelled, id)
	s.flights.Add(1)
	go func() {
		defer s.flights.Done()
		ctx, cancel := context.WithTimeout(s.b.life, sharedFor)
		defer cancel()
		call := newCall().name(s.b.prefix, c.name, "lzmt").str(id).end()
		_, _ = s.b.run(ctx, s.b.scripts.cancel, call) // else the grant runs out by itself
	}()
}
