package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A grant moves to a node of another role or of another session in one step. The step creates the
// new node with the old one's sequence number and deletes the old one. So the grant keeps its
// place: waiters behind it find the new node in the old position, as after a downgrade by Curator
// (CURATOR-621). The new node's data contains the token.

// Downgrade replaces the writer's node by a reader's.
func (s *session) Downgrade(ctx context.Context, h driver.Hold) error {
	e, err := s.findGrant(ctx, h)
	if err != nil {
		return explain(err)
	}
	if e == nil {
		return s.ended(ctx, h)
	}
	defer e.unlock()
	switch {
	case e.permits():
		return fmt.Errorf("%w: a semaphore's permits cannot be downgraded", driver.ErrKind)
	case e.role == shared:
		return nil
	}
	to := e.nodes[0]
	to.role, to.name = shared, sequenced(e.uuid, readSuffix, to.seq)
	data := e.record()
	data.token = e.token
	err = e.move(ctx, e.nodes, queue{to}, data, e.marks)
	if errors.Is(err, zk.ErrNoNode) {
		if err := e.look(ctx); err != nil {
			return explain(err)
		}
		if e.state == idle {
			e.forget()
			return s.ended(ctx, h)
		}
		return errContention
	}
	if err != nil {
		return explain(err)
	}
	return nil
}

// move replaces the nodes from by the nodes to, which then belong to e. Their marks move with them.
func (e *entry) move(ctx context.Context, from, to queue, data record, marks queue) error {
	l := e.s.l
	var ops []zk.Op
	var moved queue
	if len(marks) > 0 {
		var err error
		if moved, ops, err = e.moveMarks(ctx, marks, to); err != nil {
			return err
		}
	}
	for i, n := range to {
		ops = append(ops, zk.CreateOp(e.path(n), data.bytes(), zk.Ephemeral, e.s.l.sealedACL),
			zk.DeleteOp(e.path(from[i]), zk.AnyVersion))
		data.info = ""
	}
	made, err := l.Multi(ctx, ops...)
	if err != nil {
		e.noteUncertain(err)
		return err
	}
	for _, m := range made {
		if m.Stat.Ctime > 0 {
			l.noteClock(m.Stat.Ctime)
		}
	}
	e.setRole(to[0].role)
	e.marks = moved
	e.setState(held, data.token, to...)
	return nil
}

// moveMarks returns the marks of the new nodes, and the operations that replace the old marks. It
// deletes a mark whose time is over.
func (e *entry) moveMarks(ctx context.Context, marks, to queue) (moved queue, ops []zk.Op, err error) {
	l := e.s.l
	clock, err := l.clock(ctx, e.dir)
	if err != nil {
		return nil, nil, err
	}
	paths := make([]string, len(marks))
	for i, m := range marks {
		paths[i] = e.path(m)
	}
	nodes, _ := l.GetAll(ctx, nil, paths...)
	for i, n := range nodes {
		if n.Err != nil {
			if errors.Is(n.Err, zk.ErrNoNode) {
				continue
			}
			return nil, nil, n.Err
		}
		r := parseRecord(n.Data)
		if r.keep = keptFor(&r, &n.Stat, clock); r.keep <= 0 {
			ops = append(ops, zk.DeleteOp(paths[i], n.Stat.Version)) // nobody else would delete it
			continue
		}
		m := to[i]
		m.uuid = keptUUID(m.uuid)
		m.name = sequenced(m.uuid, suffixOf(to[i]), m.seq)
		moved = append(moved, m)
		ops = append(ops, zk.CreateOp(e.path(m), r.bytes(), zk.Persistent, e.s.b.acl), zk.DeleteOp(paths[i], n.Stat.Version))
	}
	return moved, ops, nil
}

// Adopt replaces the nodes of another session by nodes of this one.
func (s *session) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if err := errors.Join(driver.CheckID(id), s.b.check(h.Name)); err != nil {
		return err
	}
	req := driver.Request{ID: id, Name: h.Name, Mode: driver.Exclusive, N: 1, Info: info}
	dir := s.b.folder(h.Name)
	for range manyTries {
		all, err := s.l.list(ctx, dir, dir+"/"+locksDir, dir+"/"+leasesDir)
		if err != nil {
			return explain(err)
		}
		err = s.adopt(ctx, h, req, all)
		if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return explain(err)
		}
	}
	return errContention
}

func (s *session) adopt(ctx context.Context, h driver.Hold, req driver.Request, all []zk.Listing) error {
	top, locks, leases := parseDir(all[0].Names), parseDir(all[1].Names).queue, permitsOf(parseDir(all[2].Names).queue)
	theirs, ours := uuidOf(h.ID), uuidOf(req.ID)
	holding := top.queue[:top.holding()]
	from, marks := holding.findAll(theirs), top.queue.findAll(keptUUID(theirs))
	if held := leases.findAll(theirs); len(held) > 0 {
		from, marks = held, leases.findAll(keptUUID(theirs))
	}
	there := append(holding.findAll(ours), leases.findAll(ours)...)
	switch {
	case len(there) == 0 && len(top.queue.findAll(ours))+len(locks.findAll(ours)) > 0:
		return invalid("id %q: it belongs to another request of the name", req.ID)
	case len(there) > 0:
		from = there // adopted before, or another grant
	case len(from) == 0:
		return s.ended(ctx, h)
	}
	req.Mode = from[0].role.mode()
	e, err := s.register(ctx, &req)
	if err != nil {
		return err
	}
	defer e.unlock()
	if e.state == idle {
		e.req = req
		e.req.ReadWrite = suffixOf(from[0]) == writeSuffix
	}
	data, stat, err := s.l.Get(ctx, e.path(from[0]))
	if err != nil {
		e.forgetIfIdle()
		return err
	}
	r := parseRecord(data)
	token := uint64(stat.Czxid)
	if r.token != 0 {
		token = r.token
	}
	switch {
	case len(there) > 0 && token != h.Token:
		e.forgetIfIdle()
		return invalid("id %q: it belongs to another request of the name", req.ID)
	case token != h.Token:
		e.forgetIfIdle()
		return s.ended(ctx, h)
	}
	e.setRole(from[0].role)
	e.req.N, e.req.Limit = max(1, r.n), r.limit
	if len(there) > 0 {
		e.marks = append(top.queue.findAll(keptUUID(ours)), leases.findAll(keptUUID(ours))...)
		e.setState(held, token, there...)
		return nil
	}
	mine := e.record()
	mine.token = token
	to := make(queue, len(from))
	for i, n := range from {
		to[i] = n
		to[i].uuid, to[i].name = ours, sequenced(ours, suffixOf(n), n.seq)
	}
	if err := e.move(ctx, from, to, mine, marks); err != nil {
		e.forgetIfIdle()
		return err
	}
	e.checked = true
	return nil
}

// forgetIfIdle forgets e if the servers have nothing of it.
func (e *entry) forgetIfIdle() {
	if e.state == idle && !e.unsure {
		e.forget()
	}
}

// findAll returns the nodes with this UUID.
func (l queue) findAll(uuid string) (out queue) {
	for _, n := range l {
		if n.uuid == uuid {
			out = append(out, n)
		}
	}
	return out
}
