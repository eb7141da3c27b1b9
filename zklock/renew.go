package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Renew proves that the session lives, and finds out which of its nodes are gone. The servers keep
// all nodes of a session together. So Renew asks only once whether each node exists; from then on a
// watch reports its deletion. Renew looks up places in their queues.
func (s *session) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	begin := time.Now()
	if err := s.usable(); err != nil {
		return nil, err
	}
	if len(holds) == 0 {
		return nil, nil // package zk keeps the session by itself
	}
	entries := make([]*entry, len(holds))
	for i, h := range holds {
		e, err := s.findHold(ctx, h)
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
	if err := s.l.Flush(ctx); err != nil { // so that earlier deletions are known
		return nil, explain(err)
	}
	if err := s.prove(begin); err != nil {
		return nil, err
	}
	var changes []driver.Change
	seen := map[string]contents{}
	for i, e := range entries {
		ch := driver.Change{State: driver.Gone}
		if e != nil {
			e.extend(begin)
			var err error
			if ch, err = s.changeOf(ctx, e, holds[i].Token != 0, seen); err != nil {
				return nil, explain(err)
			}
		}
		if ch.Index = i; ch.State != 0 {
			changes = append(changes, ch)
		}
	}
	return changes, nil
}

// findHold returns the entry of a grant or place, or nil if it has ended. It ends an expired one.
func (s *session) findHold(ctx context.Context, h driver.Hold) (*entry, error) {
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

// watchOwn watches the nodes of those entries whose nodes are not watched.
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
			s.noteDeleted(mine[i], base(paths[i]), ev.Type == zk.EventDeleted)
		}, paths...)
		for i, err := range errs {
			if err != nil {
				s.noteDeleted(mine[i], base(paths[i]), errors.Is(err, zk.ErrNoNode))
			}
		}
		if err := firstBut(errs, zk.ErrNoNode); err != nil {
			return err
		}
	}
	return nil
}

// firstBut returns the first error other than but.
func firstBut(errs []error, but error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, but) {
			return err
		}
	}
	return nil
}

// noteDeleted records that a watched node is gone, or at least is no longer watched.
func (s *session) noteDeleted(e *entry, node string, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.watched == node {
		e.watched, e.gone = "", gone
	}
}

// changeOf returns Renew's result for an entry: a grant or a place. seen has the folders that were
// listed for other entries.
func (s *session) changeOf(ctx context.Context, e *entry, grant bool, seen map[string]contents) (driver.Change, error) {
	s.mu.Lock()
	state, token, gone, role := e.state, e.token, e.gone, e.role
	s.mu.Unlock()
	switch {
	case gone: // or moved, and the answer has not come
		if err := s.handleDeleted(ctx, e); err != nil || e.isDead() {
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
		in = parseDir(all[0].Names)
		seen[e.dir] = in
		s.noteLength(e.dir, len(in.queue))
	}
	me, ok := in.find(e.uuid)
	if !ok {
		if err := s.handleDeleted(ctx, e); err != nil {
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
		if blockers := in.blockers(role, me.seq); slices.ContainsFunc(blockers, func(n node) bool { return !n.kept() }) {
			return ch, nil
		}
	}
	// A wake-up may have been lost, or the name is kept: in both cases e is evaluated.
	left, err := e.recheck(ctx)
	if left > 0 {
		ch.Retry = left
	}
	return s.outcome(e, ch), err
}

// outcome returns ch, unless e has been granted in the meantime.
func (s *session) outcome(e *entry, ch driver.Change) driver.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state == held && !e.dead {
		return driver.Change{State: driver.Granted, Token: e.token}
	}
	return ch
}

// lengthSeen is how long a queue was when it was last listed.
type lengthSeen struct {
	at time.Time
	n  int
}

func (s *session) noteLength(dir string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, g := range s.lengths { // drop queues that nobody lists any more
		if time.Since(g.at) > 10*s.ttl {
			delete(s.lengths, d)
		}
	}
	s.lengths[dir] = lengthSeen{time.Now(), n}
}

// skip reports whether a long queue was listed recently. Many waiters that list it at each renewal
// would overload the servers. The watch wakes them.
func (s *session) skip(dir string) bool {
	const short = 500 // a queue of this length is listed at every renewal
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.lengths[dir]
	return time.Since(g.at) < s.ttl*time.Duration(g.n)/short/3
}

// handleDeleted ends an entry whose node somebody has deleted.
func (s *session) handleDeleted(ctx context.Context, e *entry) error {
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
	case e.state == held && e.permits() && len(e.nodes) < e.req.N: // some are gone: the grant has ended
		return ignore(e.end(ctx, 0, false), driver.ErrGone)
	default:
		s.mu.Lock()
		e.gone = false
		s.mu.Unlock()
	}
	return nil
}
