package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Release deletes the grant's nodes. If the name stays taken, marks replace them in the same step.
func (s *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if keep < 0 || keep > driver.MaxHold {
		return invalid("time to keep the name %v: allowed are 0 to %v", keep, driver.MaxHold)
	}
	e, err := s.findGrant(ctx, h)
	if e != nil {
		err = e.end(ctx, keep, true)
		e.unlock()
	}
	return s.releaseError(e != nil, err, func() error { return s.ended(ctx, h) })
}

// Cancel deletes what the servers have of the request, marks included.
func (s *session) Cancel(ctx context.Context, name, id string) error {
	s.mu.Lock()
	e, i, over := s.entries[id], s.interests[id], s.over
	delete(s.interests, id)
	s.mu.Unlock()
	switch {
	case over:
		return driver.ErrClosed
	case i != nil:
		i.end()
		return nil
	case e == nil:
		return explain(s.l.Sync(ctx, "/")) // an error: the outcome is not known
	}
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	if e.isDead() {
		return nil
	}
	if e.unsure {
		if err := e.look(ctx); err != nil {
			return explain(err)
		}
	}
	if err := e.end(ctx, 0, false); err != nil && !errors.Is(err, driver.ErrGone) {
		return explain(err)
	}
	return nil
}

// lapse ends e if nobody has renewed it for a timeout.
func (e *entry) lapse(ctx context.Context) error {
	if e.isDead() || !e.late() {
		return nil
	}
	if e.unsure {
		if err := e.look(ctx); err != nil {
			return err
		}
	}
	if err := e.end(ctx, 0, true); err != nil && !errors.Is(err, driver.ErrGone) {
		return err
	}
	return nil
}

// end deletes what the servers have of e, and forgets e. A release keeps the name taken for the
// rest of its minimum hold, or for keep from now on. Otherwise end leaves no trace of e. ErrGone: e
// had ended before.
func (e *entry) end(ctx context.Context, keep time.Duration, release bool) error {
	for range manyTries {
		if e.state == idle {
			e.forget()
			return driver.ErrGone
		}
		var ops []zk.Op
		for _, n := range e.nodes {
			ops = append(ops, zk.DeleteOp(e.path(n), zk.AnyVersion))
		}
		marks, rest := e.marks, time.Duration(0)
		if !release && (len(marks) > 0 || e.req.MinHold > 0) {
			// The marks first: nothing must block the next contender after e is gone.
			if err := e.unmark(ctx); err != nil {
				return err
			}
			marks = nil
		}
		if release {
			if !e.marked.IsZero() { // the mark is older than the answer
				rest = e.req.MinHold - time.Since(e.marked)
			}
			rest = max(rest, keep)
		}
		if rest > 0 && (keep == rest || len(marks) == 0) {
			var made []zk.Op
			if marks, made = e.keep(e.nodes, rest); len(e.marks) > 0 { // the marks exist
				made = made[:0]
				r := e.record()
				r.token, r.keep = e.token, rest
				for _, m := range e.marks {
					made = append(made, zk.SetOp(e.path(m), r.bytes(), zk.AnyVersion))
				}
			}
			ops = append(ops, made...)
		}
		announces := release && rest <= 0 && len(marks) == 0 && e.announces()
		if announces {
			ops = append([]zk.Op{zk.SetOp(e.path(e.nodes[0]), nil, zk.AnyVersion)}, ops...)
		}
		err := e.carryOut(ctx, ops)
		switch {
		case err == nil:
			e.finish(marks, rest)
			return nil
		case announces && errors.Is(err, zk.ErrNoAuth): // release without a change of the data
			e.deleteOnly = true
			continue
		case !errors.Is(err, zk.ErrNoNode):
			e.noteUncertain(err)
			return err
		}
		// Somebody else deleted a contender or a mark.
		e.marks = nil
		if err := e.look(ctx); err != nil {
			return err
		}
	}
	return errContention
}

// unmark deletes the marks of e's minimum hold, including marks whose answer was lost.
func (e *entry) unmark(ctx context.Context) error {
	marks := e.marks
	if len(marks) == 0 {
		marks, _ = e.keep(e.nodes, e.req.MinHold)
	}
	names := make([]string, len(marks))
	for i, m := range marks {
		names[i] = m.name
	}
	if err := e.s.l.deleteAll(ctx, parent(e.path(marks[0])), names); err != nil {
		return err
	}
	e.marks, e.marked = nil, time.Time{}
	return nil
}

// carryOut is Multi, or a Delete if one operation is enough: it costs less.
func (e *entry) carryOut(ctx context.Context, ops []zk.Op) error {
	if len(ops) == 1 && len(e.nodes) == 1 {
		return e.s.l.Delete(ctx, e.path(e.nodes[0]), zk.AnyVersion)
	}
	_, err := e.s.l.Multi(ctx, ops...)
	return err
}

// finish ends the work for e on this side: it forgets e, and schedules the deletion of its marks.
func (e *entry) finish(marks queue, rest time.Duration) {
	dirs := e.folders()
	plain := !e.s.l.Containers()
	e.forget()
	if len(marks) > 0 {
		m := mark{dir: parent(e.path(marks[0])), nodes: marks, due: time.Now().Add(rest)}
		e.s.mu.Lock()
		e.s.marks = append(e.s.marks, m)
		e.s.mu.Unlock()
	}
	if plain {
		e.s.spawn(func() {
			ctx, cancel := e.s.exchangeCtx()
			defer cancel()
			e.s.l.tidy(ctx, dirs...)
		})
	}
}

// ended returns the error for a grant that has ended: ErrTaken if somebody has a later one.
func (s *session) ended(ctx context.Context, h driver.Hold) error {
	r, err := s.l.inspect(ctx, h.Name)
	if err != nil {
		return explain(err)
	}
	for _, o := range r.Holders {
		if !o.Kept && o.Token > h.Token {
			return driver.ErrTaken
		}
	}
	return driver.ErrGone
}
