package zklock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// session is a client's session with protocol Ordered: one ZooKeeper session from start to end. The
// servers end only whole sessions. A single grant or place that nobody renews is ended by this side
// (lapse).
type session struct {
	*sessionBase
	entries   map[string]*entry // by request ID
	interests map[string]*interest
	marks     []mark
	lengths   map[string]lengthSeen // by folder
	recent    map[string]recent     // by folder
}

// mark keeps a name taken, although nobody holds it, until due.
type mark struct {
	dir   string
	nodes queue
	due   time.Time
}

func newSession(b *Backend, l *link) *session {
	s := &session{
		sessionBase: newSessionBase(b, l),
		entries:     map[string]*entry{}, interests: map[string]*interest{}, lengths: map[string]lengthSeen{},
		recent: map[string]recent{},
	}
	s.work.Go(func() { s.runPeriodically(s.cleanUp) })
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
	return s.endSession(ctx, func() {
		if s.l.Containers() {
			return
		}
		for _, e := range mine { // servers without containers do not delete the folders
			if e.lock(ctx) == nil {
				_ = e.end(ctx, 0, true) // if it fails, the session's end deletes the nodes
				e.unlock()
			}
		}
	})
}

// register returns the entry of a request with its mutex locked, and extends it by a timeout. It
// creates the entry if there is none.
func (s *session) register(ctx context.Context, req *driver.Request) (*entry, error) {
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
		if e.late() && !e.isDead() { // an expired request is not revived
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

// findGrant returns the entry of a grant with its mutex locked. It returns nil if the session has
// no such grant, or the grant has expired.
func (s *session) findGrant(ctx context.Context, h driver.Hold) (*entry, error) {
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

// cleanUp deletes the nodes of requests that nobody has renewed, and the marks whose time is over.
func (s *session) cleanUp(now time.Time) {
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
		ctx, cancel := s.exchangeCtx()
		if e.lock(ctx) == nil {
			_ = e.lapse(ctx) // if it fails, the next call repeats it
			e.unlock()
		}
		cancel()
	}
	for _, m := range due {
		ctx, cancel := s.exchangeCtx()
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

// recent is when this session last got a lock, and when another contender was last in its way.
type recent struct{ granted, contended time.Time }

// noteGranted records a grant, for grantedRecently.
func (s *session) noteGranted(dir string) { s.note(dir, func(r *recent) { r.granted = time.Now() }) }

// noteContended records that another contender was in the way, for contended.
func (s *session) noteContended(dir string) {
	s.note(dir, func(r *recent) { r.contended = time.Now() })
}

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

// grantedRecently reports whether this session got the lock within the last second. The holder then
// changes so often that it is not worth reporting.
func (s *session) grantedRecently(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.recent[dir].granted) < time.Second
}

// contended reports whether another contender was seen within the last second. It may wait behind
// the holder.
func (s *session) contended(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.recent[dir].contended) < time.Second
}
