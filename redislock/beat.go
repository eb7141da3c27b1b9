package redislock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A Format may have a queue whose places last for a second or two only. So the session gives a sign of
// life for those of its requests that wait there. A request that has lost its place asks again, and
// joins the queue at its end.

// queued reports whether a request of this mode has a place in the other library's queue while it
// waits.
func (f *Format) queued(mode driver.Mode, rw bool) bool {
	return f != nil && f.Beat > 0 && mode == driver.Exclusive && !rw
}

// beat gives signs of life until the session is closed, and ends the subscriptions of requests that
// have ended.
func (e *announcements) beat() {
	ticker := time.NewTicker(e.in.b.format.Beat)
	defer ticker.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-ticker.C:
		}
		e.in.signOfLife(e.ctx)
		e.prune()
	}
}

// signOfLife keeps the places of all requests that wait, in one exchange.
func (s *session) signOfLife(ctx context.Context) {
	waiting := map[string][]string{} // IDs by name
	s.mu.Lock()
	for id, a := range s.requests {
		if a.waits && a.queued && a.token == 0 {
			waiting[a.name] = append(waiting[a.name], id)
		}
	}
	s.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	var calls []Call
	var of [][]string
	for name, all := range waiting {
		for ids := range slices.Chunk(all, 256) {
			c := s.b.keys(name, "lzmt").done()
			calls = append(calls, Call{s.b.scripts.beat, slices.Clone(c.keyList()), ids})
			of = append(of, ids)
			c.free()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.b.format.Beat)
	defer cancel()
	for i, r := range s.b.conn.RunAll(ctx, calls) {
		if r.Err != nil {
			continue // the next one may come in time
		}
		for _, v := range r.Value.List {
			if v.Int >= 1 && v.Int <= int64(len(of[i])) {
				s.askAgain(of[i][v.Int-1])
			}
		}
	}
}

// askAgain wakes a waiter.
func (s *session) askAgain(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.requests[id]; ok && a.waits {
		a.wake.Put(0)
	}
}
