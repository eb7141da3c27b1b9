package zklock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// session is a client's presence: one ZooKeeper session for life. The servers know only
// when the whole session ends; that a single grant or place which nobody renews runs out
// is this side's to see to (lapse).
type session struct {
	*presence
	entries   map[string]*entry // by request ID
	interests map[string]*interest
	marks     []mark
	lines     map[string]glance // by folder
	recent    map[string]recent // by folder
}

// mark keeps a name taken for nobody until due, when it can go.
type mark struct {
	dir   string
	nodes line
	due   time.Time
}

func newSession(b *Backend, l *link) *session {
	s := &session{
		presence: newPresence(b, l),
		entries:  map[string]*entry{}, interests: map[string]*interest{}, lines: map[string]glance{}, recent: map[string]recent{},
	}
	s.work.Go(func() { s.watchOver(s.tend) })
	return s
}

// Close ends the session at the servers, and with it its nodes.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	var mine []*entry
	for _, e := range s.entries {
		mine = append(mine, e)
	}
	s.mu.Unlock()
	return s.leave(ctx, func() {
		if s.l.Containers() {
			return
		}
		for _, e := range mine { // else nobody would delete the folders
			if e.lock(ctx) == nil {
				_ = e.end(ctx, 0, true) // the session's end does it too
				e.unlock()
			}
		}
	})
}

// enter returns the entry of a request, which it makes if there is none, with its gate
// locked. The request is good for another timeout.
func (s *session) enter(ctx context.Context, req *driver.Request) (*entry, error) {
	for {
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return nil, driver.ErrClosed
		}
		e := s.entries[req.ID]
		if e == nil {
			e = newEntry(s, req)
			s.entries[req.ID] = e
		}
		s.mu.Unlock()
		if err := e.lock(ctx); err != nil {
			return nil, err
		}
		if e.late() && !e.isDead() { // what has run out is not revived
			if err := e.lapse(ctx); err != nil {
				e.unlock()
				return nil, explain(err)
			}
		}
		if !e.isDead() {
			e.extend(time.Now())
			return e, nil
		}
		e.unlock()
	}
}

// own returns the entry of a grant with its gate locked, or nil if the session has no such
// grant, or it has run out.
func (s *session) own(ctx context.Context, h driver.Hold) (*entry, error) {
	s.mu.Lock()
	e := s.entries[h.ID]
	over := s.over
	s.mu.Unlock()
	switch {
	case over:
		return nil, driver.ErrClosed
	case e == nil || e.req.Name != h.Name:
		return nil, nil
	}
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	if e.unsure {
		if err := e.look(ctx); err != nil {
			e.unlock()
			return nil, err
		}
	}
	if e.late() {
		if err := e.lapse(ctx); err != nil {
			e.unlock()
			return nil, err
		}
	}
	if e.isDead() || e.state != held || e.token != h.Token {
		e.unlock()
		return nil, nil
	}
	return e, nil
}

// tend deletes what nobody has renewed, and what kept a name taken long enough.
func (s *session) tend(now time.Time) {
	var late []*entry
	var due, later []mark
	s.mu.Lock()
	for _, e := range s.entries {
		if now.After(e.deadline) {
			late = append(late, e)
		}
	}
	for _, m := range s.marks {
		if now.After(m.due) {
			due = append(due, m)
		} else {
			later = append(later, m)
		}
	}
	s.marks = later
	s.mu.Unlock()
	for _, e := range late {
		ctx, cancel := s.soon()
		if e.lock(ctx) == nil {
			_ = e.lapse(ctx) // else the next time
			e.unlock()
		}
		cancel()
	}
	for _, m := range due {
		ctx, cancel := s.soon()
		left, _, err := s.l.sweep(ctx, m.dir, m.nodes)
		if err == nil {
			s.l.tidy(ctx, m.dir)
		}
		cancel()
		if left > 0 || err != nil && s.l.Err() == nil {
			m.due = now.Add(max(left, time.Second))
			s.mu.Lock()
			s.marks = append(s.marks, m)
			s.mu.Unlock()
		}
	}
}

// recent is when a lock was last granted to this session, and when another was last in its way.
type recent struct{ won, met time.Time }

// won takes note of a grant, for busy.
func (s *session) won(dir string) { s.note(dir, func(r *recent) { r.won = time.Now() }) }

// met takes note of somebody in the way, for rivals.
func (s *session) met(dir string) { s.note(dir, func(r *recent) { r.met = time.Now() }) }

func (s *session) note(dir string, f func(*recent)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const many = 1000
	if len(s.recent) >= many {
		clear(s.recent)
	}
	r := s.recent[dir]
	f(&r)
	s.recent[dir] = r
}

// busy reports whether the lock goes from hand to hand, so that it is of no use to tell who has
// it just now.
func (s *session) busy(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.recent[dir].won) < time.Second
}

// rivals reports whether somebody else wants the lock these days, and may stand behind its holder.
func (s *session) rivals(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.recent[dir].met) < time.Second
}
