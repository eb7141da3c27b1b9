package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// Renew shows that the session lives, and finds out what of it does not. The servers keep all
// of a session's nodes at once; so what is asked is whether each is still there, and that is
// asked once: from then on a watch tells if somebody deletes it. Places are looked up in
// their lines.
func (s *session) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	begin := time.Now()
	if err := s.usable(); err != nil {
		return nil, err
	}
	if len(holds) == 0 {
		return nil, nil // the client of ours keeps the session by itself
	}
	entries := make([]*entry, len(holds))
	for i, h := range holds {
		e, err := s.claimed(ctx, h)
		if err != nil {
			return nil, explain(err)
		}
		entries[i] = e
	}
	if err := s.watchOwn(ctx, entries); err != nil {
		return nil, explain(err)
	}
	if err := s.l.Sync(ctx, "/"); err != nil {
		return nil, explain(err)
	}
	if err := s.l.Flush(ctx); err != nil { // so that what has been deleted before is known
		return nil, explain(err)
	}
	if err := s.prove(begin); err != nil {
		return nil, err
	}
	var changes []driver.Change
	seen := map[string]listed{}
	for i, e := range entries {
		ch := driver.Change{State: driver.Gone}
		if e != nil {
			e.extend(begin)
			var err error
			if ch, err = s.news(ctx, e, holds[i].Token != 0, seen); err != nil {
				return nil, explain(err)
			}
		}
		if ch.Index = i; ch.State != 0 {
			changes = append(changes, ch)
		}
	}
	return changes, nil
}

// claimed returns the entry of a hold or place, or nil if it is over. What has run out is
// ended.
func (s *session) claimed(ctx context.Context, h driver.Hold) (*entry, error) {
	s.mu.Lock()
	e := s.entries[h.ID]
	if e == nil || e.req.Name != h.Name || h.Token != 0 && (e.state != held || e.token != h.Token) {
		s.mu.Unlock()
		return nil, nil
	}
	late, unsure := time.Now().After(e.deadline), e.unsure
	s.mu.Unlock()
	if !late && !unsure {
		return e, nil
	}
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.unlock()
	if e.unsure && !e.isDead() {
		if err := e.look(ctx); err != nil {
			return nil, err
		}
	}
	if err := e.lapse(ctx); err != nil {
		return nil, err
	}
	if e.isDead() || e.state == idle || h.Token != 0 && (e.state != held || e.token != h.Token) {
		return nil, nil
	}
	return e, nil
}

// watchOwn watches the nodes of entries whose nodes are not watched yet.
func (s *session) watchOwn(ctx context.Context, entries []*entry) error {
	const atOnce = 1000
	for chunk := range slices.Chunk(entries, atOnce) {
		var mine []*entry
		var paths []string
		s.mu.Lock()
		for _, e := range chunk {
			if e == nil || e.state == idle || e.watched == e.nodes[0].name {
				continue
			}
			e.watched, e.gone = e.nodes[0].name, false
			mine, paths = append(mine, e), append(paths, e.path(e.nodes[0]))
		}
		s.mu.Unlock()
		if len(paths) == 0 {
			continue
		}
		errs := s.l.WatchAll(ctx, func(i int, ev zk.Event) {
			s.deleted(mine[i], base(paths[i]), ev.Type == zk.EventDeleted)
		}, paths...)
		for i, err := range errs {
			if err != nil {
				s.deleted(mine[i], base(paths[i]), errors.Is(err, zk.ErrNoNode))
			}
		}
		if err := firstBut(errs, zk.ErrNoNode); err != nil {
			return err
		}
	}
	return nil
}

// firstBut returns the first error that is not but.
func firstBut(errs []error, but error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, but) {
			return err
		}
	}
	return nil
}

// deleted takes note that a node which was watched is gone, or at least not watched any more.
func (s *session) deleted(e *entry, node string, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.watched == node {
		e.watched, e.gone = "", gone
	}
}

// news is what Renew has to tell of an entry, a grant or a place. Folders that were
// listed for others are in seen.
func (s *session) news(ctx context.Context, e *entry, grant bool, seen map[string]listed) (driver.Change, error) {
	s.mu.Lock()
	state, token, gone, role := e.state, e.token, e.gone, e.role
	s.mu.Unlock()
	switch {
	case gone: // or moved, and the answer is yet to come
		if err := s.buried(ctx, e); err != nil || e.isDead() {
			return driver.Change{State: driver.Gone}, err
		}
		if grant {
			return driver.Change{}, nil
		}
		return s.outcome(e, driver.Change{State: driver.Waiting, Retry: s.ttl}), nil
	case grant:
		return driver.Change{}, nil
	case state == held:
		return driver.Change{State: driver.Granted, Token: token}, nil
	}
	in, ok := seen[e.dir]
	if !ok {
		if s.skip(e.dir) {
			return driver.Change{}, nil
		}
		all, err := s.l.listHere(ctx, e.folders()[0])
		if err != nil {
			return driver.Change{}, err
		}
		in = read(all[0].Names)
		seen[e.dir] = in
		s.glance(e.dir, len(in.line))
	}
	me, ok := in.of(e.uuid)
	if !ok {
		if err := s.buried(ctx, e); err != nil {
			return driver.Change{}, err
		}
		return s.outcome(e, driver.Change{State: driver.Gone}), nil
	}
	ch := driver.Change{State: driver.Waiting, Retry: s.ttl, Ahead: len(in.before(me.seq))}
	if e.permits() {
		if ch.Ahead > 0 {
			return ch, nil
		}
	} else {
		ch.Ahead = max(0, ch.Ahead-in.holding())
		if way := in.way(role, me.seq); slices.ContainsFunc(way, func(n node) bool { return !n.kept() }) {
			return ch, nil
		}
	}
	// A wake-up may have been lost, or the name is kept: whatever it is, e goes on.
	left, err := e.nudge(ctx)
	if left > 0 {
		ch.Retry = left
	}
	return s.outcome(e, ch), err
}

// outcome is ch, unless e has been granted meanwhile.
func (s *session) outcome(e *entry, ch driver.Change) driver.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state == held && !e.dead {
		return driver.Change{State: driver.Granted, Token: e.token}
	}
	return ch
}

// glance is how long a line was when it was last looked at.
type glance struct {
	at time.Time
	n  int
}

func (s *session) glance(dir string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, g := range s.lines { // forget what nobody looks at any more
		if time.Since(g.at) > 10*s.ttl {
			delete(s.lines, d)
		}
	}
	s.lines[dir] = glance{time.Now(), n}
}

// skip reports whether a long line was looked at not long ago. Many who wait and look at each
// renewal would keep the servers busy with lists; the watch is what wakes them.
func (s *session) skip(dir string) bool {
	const short = 500 // contenders that are listed at every renewal
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.lines[dir]
	return time.Since(g.at) < s.ttl*time.Duration(g.n)/short/3
}

// buried ends an entry whose node somebody has deleted.
func (s *session) buried(ctx context.Context, e *entry) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	if e.isDead() {
		return nil
	}
	if err := e.look(ctx); err != nil {
		return err
	}
	switch {
	case e.state == idle:
		e.forget()
	case e.state == held && e.permits() && len(e.nodes) < e.req.N: // some of it is gone, so all is
		return ignore(e.end(ctx, 0, false), driver.ErrGone)
	default:
		s.mu.Lock()
		e.gone = false
		s.mu.Unlock()
	}
	return nil
}
