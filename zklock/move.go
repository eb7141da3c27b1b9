package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// A grant moves to another node, of another kind or of another session, by a step that
// creates the new node with the old one's sequence number and deletes the old. So it keeps
// its place: who waits behind it finds the new node where the old one was, as after a
// downgrade by Curator (CURATOR-621). The token moves along, in the new node's data.

// Downgrade puts a reader's node in the place of the writer's.
func (s *session) Downgrade(ctx context.Context, h driver.Hold) error {
	e, err := s.own(ctx, h)
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
	err = e.move(ctx, e.nodes, line{to}, data, e.marks)
	if errors.Is(err, zk.ErrNoNode) {
		if err := e.look(ctx); err != nil {
			return explain(err)
		}
		if e.state == idle {
			e.forget()
			return s.ended(ctx, h)
		}
		return errTurmoil
	}
	if err != nil {
		return explain(err)
	}
	return nil
}

// move puts nodes in the place of others, which e has from then on, and with them its marks.
func (e *entry) move(ctx context.Context, from, to line, data record, marks line) error {
	l := e.s.l
	var ops []zk.Op
	var moved line
	if len(marks) > 0 {
		var err error
		if moved, ops, err = e.moveMarks(ctx, marks, to); err != nil {
			return err
		}
	}
	for i, n := range to {
		ops = append(ops, zk.CreateOp(e.path(n), data.bytes(), zk.Ephemeral, e.s.l.sealed), zk.DeleteOp(e.path(from[i]), zk.AnyVersion))
		data.info = ""
	}
	made, err := l.Multi(ctx, ops...)
	if err != nil {
		e.doubt(err)
		return err
	}
	for _, m := range made {
		if m.Stat.Ctime > 0 {
			l.saw(m.Stat.Ctime)
		}
	}
	e.play(to[0].role)
	e.marks = moved
	e.become(held, data.token, to...)
	return nil
}

// moveMarks returns the marks that go with nodes in the place of these, and what moves them.
// A mark whose time is over goes.
func (e *entry) moveMarks(ctx context.Context, marks, to line) (moved line, ops []zk.Op, err error) {
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
			ops = append(ops, zk.DeleteOp(paths[i], n.Stat.Version)) // nobody else would, unless the name is used again
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

// Adopt puts nodes of this session in the place of those of another.
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
	return errTurmoil
}

func (s *session) adopt(ctx context.Context, h driver.Hold, req driver.Request, all []zk.Listing) error {
	top, locks, leases := read(all[0].Names), read(all[1].Names).line, permitsOf(read(all[2].Names).line)
	theirs, ours := uuidOf(h.ID), uuidOf(req.ID)
	holding := top.line[:top.holding()]
	from, marks := holding.all(theirs), top.line.all(keptUUID(theirs))
	if held := leases.all(theirs); len(held) > 0 {
		from, marks = held, leases.all(keptUUID(theirs))
	}
	there := append(holding.all(ours), leases.all(ours)...)
	switch {
	case len(there) == 0 && len(top.line.all(ours))+len(locks.all(ours)) > 0:
		return invalid("id %q: it stands for another request of the name", req.ID)
	case len(there) > 0:
		from = there // adopted before, or another grant
	case len(from) == 0:
		return s.ended(ctx, h)
	}
	req.Mode = from[0].role.mode()
	e, err := s.enter(ctx, &req)
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
		e.abandon()
		return err
	}
	r := parseRecord(data)
	token := uint64(stat.Czxid)
	if r.token != 0 {
		token = r.token
	}
	switch {
	case len(there) > 0 && token != h.Token:
		e.abandon()
		return invalid("id %q: it stands for another request of the name", req.ID)
	case token != h.Token:
		e.abandon()
		return s.ended(ctx, h)
	}
	e.play(from[0].role)
	e.req.N, e.req.Limit = max(1, r.n), r.limit
	if len(there) > 0 {
		e.become(held, token, there...)
		return nil
	}
	mine := e.record()
	mine.token = token
	to := make(line, len(from))
	for i, n := range from {
		to[i] = n
		to[i].uuid, to[i].name = ours, sequenced(ours, suffixOf(n), n.seq)
	}
	if err := e.move(ctx, from, to, mine, marks); err != nil {
		e.abandon()
		return err
	}
	e.checked = true
	return nil
}

// abandon forgets e if the servers have nothing of it.
func (e *entry) abandon() {
	if e.state == idle && !e.unsure {
		e.forget()
	}
}

// all returns the nodes of a UUID.
func (l line) all(uuid string) (out line) {
	for _, n := range l {
		if n.uuid == uuid {
			out = append(out, n)
		}
	}
	return out
}
