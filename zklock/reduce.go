package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Reduce deletes all but the first n nodes of a grant of permits, in one step. Each node is a permit,
// so their number is what the servers have on record.
func (s *session) Reduce(ctx context.Context, h driver.Hold, n int) error {
	if err := driver.CheckRemaining(n); err != nil {
		return err
	}
	e, err := s.findGrant(ctx, h)
	if err != nil {
		return explain(err)
	}
	if e == nil {
		return s.ended(ctx, h)
	}
	defer e.unlock()
	if !e.permits() {
		return fmt.Errorf("%w: it is a lock", driver.ErrKind)
	}
	for range manyTries {
		switch {
		case e.state == held && len(e.nodes) < e.req.N: // somebody deleted some: the grant has ended
			if err := e.end(ctx, 0, false); ignore(err, driver.ErrGone) != nil {
				return explain(err)
			}
			return s.ended(ctx, h)
		case e.state != held:
			e.forgetIfIdle()
			return s.ended(ctx, h)
		case len(e.nodes) <= n: // done before
			return nil
		}
		err := e.reduce(ctx, n)
		if err == nil || !errors.Is(err, zk.ErrNoNode) {
			return explain(err)
		}
		if err := e.look(ctx); err != nil {
			return explain(err)
		}
	}
	return errContention
}

// reduce is one attempt of Reduce for a grant with more nodes.
func (e *entry) reduce(ctx context.Context, n int) error {
	left, _, err := e.s.l.sweep(ctx, e.dir+"/"+leasesDir, e.marks)
	switch {
	case err != nil:
		return err
	case left > 0:
		return invalid("release of permits: the minimum hold of their grant is not over")
	}
	e.marks = nil
	data := e.record()
	data.n, data.token = n, e.token
	ops := []zk.Op{zk.SetOp(e.path(e.nodes[0]), data.bytes(), zk.AnyVersion)}
	for _, node := range e.nodes[n:] {
		ops = append(ops, zk.DeleteOp(e.path(node), zk.AnyVersion))
	}
	if _, err = e.s.l.Multi(ctx, ops...); err != nil {
		e.noteUncertain(err)
		if !e.unsure {
			return err
		}
	}
	// After a lost answer, too: fewer nodes then do not mean that somebody has deleted some.
	e.req.N = min(e.req.N, n)
	if err == nil {
		e.setState(held, e.token, e.nodes[:n]...)
	}
	return err
}
