package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/waiters"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A latch is a node "latch" in the lock's folder, whose data has the initial count. Below it is a
// node for each ID that has counted down. When the last ID has counted, CountDown changes the data,
// which wakes the waiters. Every reader counts the nodes, so the next one makes up for a lost
// wake-up.
//
// Another latch of the same name has the same path and the same versions, and the same IDs may
// count there. So each latch also has a random text of its own, and a node below it with this text:
// one that exists while the latch is live, then one that exists while it is removed. Each step
// depends on one of them, so that a late step cannot affect another latch.

// latch is the servers' state of a latch.
type latch struct {
	exists  bool // the node exists
	live    bool // and nobody is removing it
	count   int64
	counted int64
	open    bool   // the data has this state
	own     string // its text
}

func (l latch) left() int64 { return max(0, l.count-l.counted) }

const (
	latchMagic   = "holdfast-latch/1"
	latchClosed  = "closed"
	latchOpen    = "open"
	latchRemoved = "removed" // it will be deleted after its nodes

	liveNode    = reserved + ":live-"    // the prefix of a live latch's own node
	removedNode = reserved + ":removed-" // and of a removed one's
)

func latchData(state string, count int64, own string) []byte {
	return fmt.Appendf(nil, "%s %s %d %s\n", latchMagic, state, count, own)
}

// parseLatch reads the data of a latch. Data that holdfast did not write is damage: its meaning is
// not known, and holdfast does not delete it.
func parseLatch(data []byte, stat *zk.Stat) (l latch, err error) {
	var magic, state string
	n, err := fmt.Sscanf(string(data), "%s %s %d %s\n", &magic, &state, &l.count, &l.own)
	known := state == latchClosed || state == latchOpen || state == latchRemoved
	if n != 4 || err != nil || magic != latchMagic || !known || l.count < 0 || strings.Contains(l.own, "/") {
		return latch{}, fmt.Errorf("%w: the node %q in the lock's folder is no latch: its data is %.60q", driver.ErrDamaged,
			latchNode, data)
	}
	l.exists, l.live = true, state != latchRemoved
	l.open = state == latchOpen
	l.counted = max(0, int64(stat.NumChildren)-1) // without its own node
	return l, nil
}

// latch reads a latch as the connected server knows it.
func (l *link) latch(ctx context.Context, dir string) (latch, error) {
	data, stat, err := l.Get(ctx, dir+"/"+latchNode)
	if errors.Is(err, zk.ErrNoNode) {
		return latch{}, nil
	}
	if err != nil {
		return latch{}, err
	}
	return parseLatch(data, &stat)
}

// latchNow is latch as the leader knows it, if that matters. The connected server may lag behind, and
// know no latch of the name, or an earlier one. A step fails then, but an answer would be wrong.
func (l *link) latchNow(ctx context.Context, dir string) (latch, error) {
	at, err := l.latch(ctx, dir)
	if err != nil || at.live && at.left() > 0 {
		return at, err
	}
	if err := l.Sync(ctx, "/"); err != nil {
		return latch{}, err
	}
	return l.latch(ctx, dir)
}

// SetCount creates the latch, unless the name is in use.
func (s *session) SetCount(ctx context.Context, name string, n int64) (bool, error) {
	if n < 0 {
		return false, invalid("count %d: it must not be negative", n)
	}
	if err := errors.Join(s.usable(), s.b.check(name)); err != nil {
		return false, err
	}
	created, err := s.setCount(ctx, s.b.folder(name), n)
	return created, explain(err)
}

// setCount announces the latch by a pending node, and looks for other uses of the name. Then it
// replaces the pending node by the latch, in one step. A contender that comes after the look finds
// the pending node and deletes it (refuseLatches), or finds the latch. So there is no latch beside
// a lock, and nobody hears of a latch that its creator deletes again. Each pending node has a name
// of its own, so a late step cannot affect the latch of somebody else.
func (s *session) setCount(ctx context.Context, dir string, n int64) (bool, error) {
	own := rand.Text()
	pending := dir + "/" + pendingNode + own
	created := false
	defer func() {
		if !created {
			s.retract(ctx, dir, pending)
		}
	}()
	for range manyTries {
		in, err := s.announce(ctx, dir, pending)
		if err != nil {
			return false, err
		}
		if in.latch {
			if at, err := s.l.latch(ctx, dir); err != nil || at.live {
				return false, err
			}
			if err := s.l.clearLatch(ctx, dir); err != nil {
				return false, err
			}
		}
		if len(in.queue) > 0 || in.semaphore || in.limit {
			switch kind, err := s.l.otherThan(ctx, dir, driver.Latch); {
			case err != nil:
				return false, err
			case kind != "":
				return false, fmt.Errorf("%w: it is a %s", driver.ErrKind, kind)
			}
		}
		_, err = s.l.Multi(ctx, s.latchOps(dir, pending, own, n)...)
		switch {
		case err == nil:
			created = true
			return true, nil
		case !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNodeExists):
			return false, err
		}
	}
	return false, errContention
}

// latchOps returns the operations that replace the pending node by the latch. They fail if a latch or
// a limit has been made since.
func (s *session) latchOps(dir, pending, own string, n int64) []zk.Op {
	latch, limit := dir+"/"+latchNode, dir+"/"+limitNode
	return []zk.Op{
		zk.DeleteOp(pending, zk.AnyVersion),
		zk.CreateOp(limit, nil, zk.Persistent, s.b.acl), zk.DeleteOp(limit, zk.AnyVersion),
		zk.CreateOp(latch, latchData(latchClosed, n, own), zk.Persistent, s.b.acl),
		zk.CreateOp(latch+"/"+liveNode+own, nil, zk.Persistent, s.b.acl),
	}
}

// announce creates the pending node of a latch, if it does not exist, and then lists the folder.
func (s *session) announce(ctx context.Context, dir, pending string) (contents, error) {
	_, _, all, err := s.l.CreateAndList(ctx, pending, nil, zk.Ephemeral, s.b.acl)
	switch {
	case errors.Is(err, zk.ErrNodeExists): // another latch was in the way
		all, err = s.l.listHere(ctx, dir)
	case errors.Is(err, zk.ErrNoNode):
		if _, err = s.l.multiIn(ctx, dir, zk.CreateOp(pending, nil, zk.Ephemeral, s.b.acl)); err == nil {
			all, err = s.l.listHere(ctx, dir)
		}
	}
	if err != nil {
		return contents{}, err
	}
	return parseDir(all[0].Names), nil
}

// retract deletes a pending node, in the background if that fails. It ends with the session in any
// case, but until then Curator's clients would wait behind it.
func (s *session) retract(ctx context.Context, dir, pending string) {
	retracted := func(ctx context.Context) bool {
		err := s.l.Delete(ctx, pending, zk.AnyVersion)
		if ignore(err, zk.ErrNoNode) != nil {
			return errors.Is(err, zk.ErrNoAuth)
		}
		s.l.tidy(ctx, dir)
		return true
	}
	if !retracted(ctx) {
		s.spawn(func() { s.insist(retracted) })
	}
}

// refuseLatches deletes the pending nodes that e's contender has found in its folder. If one of
// them has become a latch or a limit, sameKind, onlyPermits or limits finds it.
func (e *entry) refuseLatches(ctx context.Context, in *contents) error {
	if e.checked || len(in.pending) == 0 {
		return nil
	}
	in.latch, in.limit = true, true
	return e.s.l.deleteAll(ctx, e.dir, in.pending)
}

// CountDown creates the node of id and counts the nodes.
func (s *session) CountDown(ctx context.Context, name, id string) (int64, error) {
	if err := errors.Join(s.usable(), s.b.check(name)); err != nil {
		return 0, err
	}
	left, err := s.l.countDown(ctx, s.b.folder(name), id)
	return left, explain(err)
}

func (l *link) countDown(ctx context.Context, dir, id string) (int64, error) {
	path := dir + "/" + latchNode
	for range manyTries {
		at, err := l.latchNow(ctx, dir)
		if err != nil {
			return 0, err
		}
		if !at.live {
			return 0, driver.ErrGone
		}
		check := zk.CheckOp(path+"/"+liveNode+at.own, zk.AnyVersion)
		if at.left() > 0 {
			_, err := l.Multi(ctx, check, zk.CreateOp(path+"/"+uuidOf(id), nil, zk.Persistent, l.b.acl))
			if errors.Is(err, zk.ErrNoNode) { // this latch was removed
				continue
			}
			if ignore(err, zk.ErrNodeExists) != nil {
				return 0, err
			}
			own := at.own
			if at, err = l.latch(ctx, dir); err != nil {
				return 0, err
			}
			if !at.live || at.own != own { // removed since
				return 0, driver.ErrGone
			}
		}
		if at.left() == 0 && !at.open {
			_, err := l.Multi(ctx, check, zk.SetOp(path, latchData(latchOpen, at.count, at.own), zk.AnyVersion))
			if ignore(err, zk.ErrNoNode) != nil {
				return 0, err
			}
		}
		return at.left(), nil
	}
	return 0, errContention
}

// interest is the watch of a caller that awaits a latch.
type interest struct {
	watch *zk.Watch
}

func (i *interest) end() {
	if i.watch != nil {
		i.watch.Remove()
	}
}

// Await reads the latch, and watches it while it is not at zero.
func (s *session) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if err := errors.Join(s.usable(), s.b.check(name)); err != nil {
		return driver.Reply{}, err
	}
	dir, wake := s.b.folder(name), waiters.NewSlot()
	// A callback may come before the answer has been read, and more than once for an ID that asks
	// again.
	data, stat, w, err := s.l.GetW(ctx, dir+"/"+latchNode, func(zk.Event) { wake.Put(0) })
	var at latch
	if err == nil {
		at, err = parseLatch(data, &stat)
	}
	if err = ignore(err, zk.ErrNoNode); err != nil || !at.live || at.left() == 0 {
		if w != nil {
			w.Remove()
		}
		if err == nil {
			at, err = s.l.latchNow(ctx, dir)
		}
		switch {
		case err != nil:
			return driver.Reply{}, explain(err)
		case !at.live:
			return driver.Reply{}, driver.ErrGone
		case at.left() == 0:
			return driver.Reply{Token: 1}, nil
		}
		wake.Put(0) // the connected server knows this latch only now
		return driver.Reply{Wake: wake}, nil
	}
	s.mu.Lock()
	old := s.interests[id]
	s.interests[id] = &interest{w}
	s.mu.Unlock()
	if old != nil {
		old.end()
	}
	return driver.Reply{Wake: wake}, nil
}

// removeLatch removes a latch: it changes the data, which wakes the waiters, then deletes the
// nodes.
func (l *link) removeLatch(ctx context.Context, dir string) error {
	removed := false
	for range manyTries {
		at, err := l.latchNow(ctx, dir)
		if err != nil {
			return err
		}
		if !at.live {
			break
		}
		path := dir + "/" + latchNode
		_, err = l.Multi(ctx, zk.DeleteOp(path+"/"+liveNode+at.own, zk.AnyVersion),
			zk.CreateOp(path+"/"+removedNode+at.own, nil, zk.Persistent, l.b.acl),
			zk.SetOp(path, latchData(latchRemoved, at.count, at.own), zk.AnyVersion))
		if removed = err == nil; removed {
			break
		}
		if err := ignore(err, zk.ErrNoNode); err != nil {
			return err
		}
	}
	if err := l.clearLatch(ctx, dir); err != nil {
		return err
	}
	l.tidy(ctx, dir)
	if removed {
		return nil
	}
	kind, err := l.otherThan(ctx, dir, driver.Latch)
	if err == nil && kind != "" {
		return fmt.Errorf("%w: it is a %s", driver.ErrKind, kind)
	}
	return cmp.Or(err, driver.ErrGone)
}

// clearLatch deletes the nodes of a removed latch.
func (l *link) clearLatch(ctx context.Context, dir string) error {
	path := dir + "/" + latchNode
	for range manyTries {
		at, err := l.latch(ctx, dir)
		if err != nil || !at.exists || at.live {
			return err
		}
		own := removedNode + at.own
		all := l.ListAll(ctx, path)
		if err = all[0].Err; err == nil {
			names := slices.DeleteFunc(all[0].Names, func(n string) bool { return n == own })
			err = l.deleteChildren(ctx, path, own, names)
		}
		if err == nil {
			_, err = l.Multi(ctx, zk.DeleteOp(path+"/"+own, zk.AnyVersion), zk.DeleteOp(path, zk.AnyVersion))
		}
		if err := ignore(ignore(err, zk.ErrNoNode), zk.ErrNotEmpty); err != nil {
			return err
		}
	}
	return nil
}

// deleteChildren deletes children of a node as long as it has the child own, many in one request.
func (l *link) deleteChildren(ctx context.Context, path, own string, names []string) error {
	const atOnce = 500
	check := zk.CheckOp(path+"/"+own, zk.AnyVersion)
	for some := range slices.Chunk(names, atOnce) {
		ops := []zk.Op{check}
		for _, name := range some {
			ops = append(ops, zk.DeleteOp(path+"/"+name, zk.AnyVersion))
		}
		_, err := l.Multi(ctx, ops...)
		if errors.Is(err, zk.ErrNoNode) { // somebody else deletes them
			for _, op := range ops[1:] {
				if _, err = l.Multi(ctx, check, op); ignore(err, zk.ErrNoNode) != nil {
					return err
				}
			}
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
