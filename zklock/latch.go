package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// A latch is a node "latch" in the lock's folder, which says the count that it was set to, and
// below it a node for each id that has counted down. When the last one has, the data is
// changed, which wakes those who wait; whoever looks counts the nodes, so a wake-up that
// nobody sent is made up for by the next who asks.

// latch is what the servers have of one.
type latch struct {
	there   bool // there is a node
	live    bool // and it is not being removed
	count   int64
	counted int64
	open    bool // the data says so
	version int32
}

func (l latch) left() int64 { return max(0, l.count-l.counted) }

const (
	latchMagic   = "holdfast-latch/1"
	latchClosed  = "closed"
	latchOpen    = "open"
	latchRemoved = "removed" // it goes as soon as its nodes have
)

func latchData(state string, count int64) []byte {
	return fmt.Appendf(nil, "%s %s %d\n", latchMagic, state, count)
}

// parseLatch reads the data of a latch. Data that is not ours, or was changed by other means, is
// damage: what it says is not known, and it is not deleted as if it said nothing.
func parseLatch(data []byte, stat *zk.Stat) (l latch, err error) {
	var magic, state string
	n, err := fmt.Sscanf(string(data), "%s %s %d\n", &magic, &state, &l.count)
	known := state == latchClosed || state == latchOpen || state == latchRemoved
	if n != 3 || err != nil || magic != latchMagic || !known || l.count < 0 {
		return latch{}, fmt.Errorf("%w: the node %q in the lock's folder is no latch: it says %.60q", driver.ErrDamaged, latchNode, data)
	}
	l.there, l.live = true, state != latchRemoved
	l.open = state == latchOpen
	l.counted, l.version = int64(stat.NumChildren), stat.Version
	return l, nil
}

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

// SetCount creates the latch. A name that turns out to be in use as something else gets it
// taken away again.
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

func (s *session) setCount(ctx context.Context, dir string, n int64) (bool, error) {
	path := dir + "/" + latchNode
	for range manyTries {
		data := latchData(latchClosed, n)
		_, stat, all, err := s.l.CreateAndList(ctx, path, data, zk.Persistent, s.b.acl)
		if errors.Is(err, zk.ErrNoNode) {
			var made []zk.Result
			if made, err = s.l.multiIn(ctx, dir, zk.CreateOp(path, data, zk.Persistent, s.b.acl)); err == nil {
				stat, all = made[0].Stat, s.l.ListAll(ctx, dir)
				err = failed(all)
			}
		}
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			latch, err := s.l.latch(ctx, dir)
			if err != nil || latch.live {
				return false, err
			}
			if err := s.l.clearLatch(ctx, dir); err != nil {
				return false, err
			}
			continue
		case err != nil:
			return false, err
		}
		in := read(all[0].Names)
		if len(in.line) == 0 && !in.semaphore {
			return true, nil
		}
		kind, err := s.l.otherThan(ctx, dir, driver.Latch)
		if kind != "" || err != nil {
			if derr := s.l.Delete(ctx, path, stat.Version); derr != nil && !errors.Is(derr, zk.ErrNoNode) {
				return false, derr
			}
			if err == nil {
				err = fmt.Errorf("%w: it is a %s", driver.ErrKind, kind)
			}
			return false, err
		}
		return true, nil
	}
	return false, errTurmoil
}

// CountDown adds the node of id and counts.
func (s *session) CountDown(ctx context.Context, name, id string) (int64, error) {
	if err := errors.Join(s.usable(), s.b.check(name)); err != nil {
		return 0, err
	}
	left, err := s.l.countDown(ctx, s.b.folder(name), id)
	return left, explain(err)
}

func (l *link) countDown(ctx context.Context, dir, id string) (int64, error) {
	path := dir + "/" + latchNode
	at, err := l.latch(ctx, dir)
	if err == nil && at.live && at.left() > 0 {
		_, _, err = l.Create(ctx, path+"/"+uuidOf(id), nil, zk.Persistent, l.b.acl)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return 0, driver.ErrGone
		case err != nil && !errors.Is(err, zk.ErrNodeExists):
			return 0, err
		}
		at, err = l.latch(ctx, dir)
	}
	if err != nil {
		return 0, err
	}
	if !at.live {
		return 0, driver.ErrGone
	}
	if at.left() == 0 && !at.open {
		_, err := l.Set(ctx, path, latchData(latchOpen, at.count), at.version)
		if err != nil && !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return 0, err
		}
	}
	return at.left(), nil
}

// interest is somebody who awaits a latch.
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
	wake := make(chan uint64, 1)
	// A callback may come before the answer has been looked at, and more than once for
	// an id that asks again; the channel has room for one, and one is enough.
	data, stat, w, err := s.l.GetW(ctx, s.b.folder(name)+"/"+latchNode, func(zk.Event) {
		select {
		case wake <- 0:
		default:
		}
	})
	if errors.Is(err, zk.ErrNoNode) {
		return driver.Reply{}, driver.ErrGone
	}
	if err != nil {
		return driver.Reply{}, explain(err)
	}
	at, err := parseLatch(data, &stat)
	if err != nil || !at.live || at.left() == 0 {
		w.Remove()
		if err != nil {
			return driver.Reply{}, err
		}
		if !at.live {
			return driver.Reply{}, driver.ErrGone
		}
		return driver.Reply{Token: 1}, nil
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

// removeLatch removes a latch: first it is made to be none, which wakes those who wait,
// then its nodes go.
func (l *link) removeLatch(ctx context.Context, dir string) error {
	removed := false
	for range manyTries {
		at, err := l.latch(ctx, dir)
		if err != nil {
			return err
		}
		if !at.live {
			break
		}
		_, err = l.Set(ctx, dir+"/"+latchNode, latchData(latchRemoved, at.count), at.version)
		if removed = err == nil; removed {
			break
		}
		if err := ignore(ignore(err, zk.ErrBadVersion), zk.ErrNoNode); err != nil {
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

// removedVersion is the least version of a latch whose nodes may be deleted. One that is live has a smaller one: it is
// made, and opened once. So whoever clears up after one that was removed cannot hit one that was set since.
const removedVersion = 2

// clearLatch deletes the nodes of a latch that was removed.
func (l *link) clearLatch(ctx context.Context, dir string) error {
	path := dir + "/" + latchNode
	for range manyTries {
		at, err := l.latch(ctx, dir)
		if err != nil || !at.there || at.live {
			return err
		}
		if at.version < removedVersion {
			_, err = l.Set(ctx, path, latchData(latchRemoved, at.count), at.version)
		} else {
			all := l.ListAll(ctx, path)
			if err = all[0].Err; err == nil {
				err = l.deleteChildren(ctx, path, at.version, all[0].Names)
			}
			if err == nil {
				err = l.Delete(ctx, path, at.version)
			}
		}
		if err := ignore(ignore(ignore(err, zk.ErrBadVersion), zk.ErrNoNode), zk.ErrNotEmpty); err != nil {
			return err
		}
	}
	return nil
}

// deleteChildren deletes children of a node while it has that version, many in a request.
func (l *link) deleteChildren(ctx context.Context, path string, version int32, names []string) error {
	const atOnce = 500
	check := zk.CheckOp(path, version)
	for some := range slices.Chunk(names, atOnce) {
		ops := []zk.Op{check}
		for _, name := range some {
			ops = append(ops, zk.DeleteOp(path+"/"+name, zk.AnyVersion))
		}
		_, err := l.Multi(ctx, ops...)
		if errors.Is(err, zk.ErrNoNode) { // somebody does the same
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

// deleteAll deletes children, many in a request.
func (l *link) deleteAll(ctx context.Context, dir string, names []string) error {
	const atOnce = 500
	for len(names) > 0 {
		n := min(len(names), atOnce)
		ops := make([]zk.Op, n)
		for i, name := range names[:n] {
			ops[i] = zk.DeleteOp(dir+"/"+name, zk.AnyVersion)
		}
		if _, err := l.Multi(ctx, ops...); errors.Is(err, zk.ErrNoNode) { // somebody does the same
			for _, name := range names[:n] {
				if err := l.Delete(ctx, dir+"/"+name, zk.AnyVersion); err != nil && !errors.Is(err, zk.ErrNoNode) {
					return err
				}
			}
		} else if err != nil {
			return err
		}
		names = names[n:]
	}
	return nil
}
