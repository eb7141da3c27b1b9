package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A limit that is set is the data of a persistent node in the lock's folder. So the servers keep the
// folder while nobody uses the name, and a lock and a latch of the name are refused. The same step
// that writes the node writes the limit in use, which the folders of the queue and of the permits
// have; see permits.go. A contender of a lock may come at the moment in which the node is created:
// so it is announced, as a latch is (see setCount).

// limits is what a semaphore's folders contain about its limit.
type limits struct {
	known    int   // in use, or set; 0: none is known
	inLeases int   // in the data of the leases folder, perhaps of an earlier use
	leases   int32 // version of the leases folder; AnyVersion: there is none
	locks    int32 // version of the queue's folder
	changed  int   // a limit set since e joined or last looked; 0: none
	set      int   // the limit that is set; 0: none
}

// limits reads both folders, and the limit that is set. SetLimit writes the limit to the queue's
// folder as well. That folder exists while there are waiters; the servers delete the folder of the
// permits when it has been empty for a while. The version is read first: a limit that is set between
// the reads changes it, and a step that depends on it fails. Unless the semaphore is in use, what the
// folders have is of an earlier use.
func (e *entry) limits(ctx context.Context, inUse bool) (l limits, err error) {
	paths := []string{e.dir + "/" + locksDir, e.dir + "/" + leasesDir, e.dir + "/" + limitNode}
	nodes, _ := e.s.l.GetAll(ctx, nil, paths...)
	for _, n := range nodes {
		if ignore(n.Err, zk.ErrNoNode) != nil {
			return l, n.Err
		}
	}
	locks, leases := nodes[0], nodes[1]
	l.leases, l.locks = zk.AnyVersion, zk.AnyVersion
	if leases.Err == nil {
		l.inLeases, l.leases = parseRecord(leases.Data).limit, leases.Stat.Version
	}
	if locks.Err == nil {
		l.locks = locks.Stat.Version
		if locks.Stat.Mzxid > max(e.seen, int64(e.token)) {
			l.changed = parseRecord(locks.Data).limit
		}
		e.seen = max(e.seen, locks.Stat.Mzxid)
	}
	if l.set, err = parseLimit(nodes[2]); err != nil {
		return l, err
	}
	if l.known = l.set; inUse {
		l.known = cmp.Or(l.set, l.inLeases)
	}
	return l, nil
}

// parseLimit returns the limit that is set; 0: there is no such node. Data that holdfast did not
// write is damage.
func parseLimit(n zk.Node) (int, error) {
	if n.Err != nil {
		return 0, ignore(n.Err, zk.ErrNoNode)
	}
	if r := parseRecord(n.Data); r.limit > 0 {
		return r.limit, nil
	}
	return 0, fmt.Errorf("%w: the node %q in the lock's folder is no limit: its data is %.60q", driver.ErrDamaged, limitNode,
		n.Data)
}

// setLimitOf returns the limit that is set; 0: none.
func (l *link) setLimitOf(ctx context.Context, dir string) (int, error) {
	nodes, _ := l.GetAll(ctx, nil, dir+"/"+limitNode)
	return parseLimit(nodes[0])
}

// limitOfWaiters returns the limit in use while nobody has a permit, 0 if none is known. What is
// older than the node of the first waiter is of an earlier use.
func (l *link) limitOfWaiters(ctx context.Context, dir, first string) (limit int, err error) {
	nodes, _ := l.GetAll(ctx, nil, first, dir+"/"+leasesDir, dir+"/"+locksDir)
	for i, n := range nodes {
		switch {
		case errors.Is(n.Err, zk.ErrNoNode):
			if i == 0 {
				return 0, nil
			}
		case n.Err != nil:
			return 0, n.Err
		case i == 1 && max(n.Stat.Mzxid, n.Stat.Pzxid) > nodes[0].Stat.Czxid, i == 2 && n.Stat.Mzxid > nodes[0].Stat.Czxid:
			limit = cmp.Or(limit, parseRecord(n.Data).limit)
		}
	}
	return limit, nil
}

// sameLimit returns ErrKind if the semaphore has a limit other than e's, and ErrNoLimit if e wants
// the one that is set, and none is.
func (e *entry) sameLimit(limit, set int) error {
	switch {
	case e.checked:
		return nil
	case e.req.Limit == 0 && set == 0:
		return driver.ErrNoLimit
	case e.req.Limit == 0 || limit == 0 || limit == e.req.Limit:
		return nil
	}
	return fmt.Errorf("%w: it is a semaphore of %d", driver.ErrKind, limit)
}

// SetLimit writes the limit to a node of its own, to the folder of a semaphore's permits, which the
// first waiter watches, and to the folder of its queue.
func (b *Backend) SetLimit(ctx context.Context, name string, limit int) error {
	if err := errors.Join(b.check(name), driver.CheckLimit(limit)); err != nil {
		return err
	}
	if b.mode == Single {
		return errOnlyMutexes("limit")
	}
	l, err := b.operator(ctx)
	if err != nil {
		return err
	}
	return explainOps(l.setLimit(ctx, b.folder(name), name, limit))
}

func (l *link) setLimit(ctx context.Context, dir, name string, limit int) error {
	pending := "" // the announcement
	defer func() {
		if pending != "" {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = l.Delete(ctx, pending, zk.AnyVersion) // contenders and the session's end delete it, too
			l.tidy(ctx, dir)
		}
	}()
	for range manyTries {
		r, err := l.inspect(ctx, name)
		switch {
		case err != nil:
			return err
		case r.Kind != driver.Unused && r.Kind != driver.Semaphore:
			return fmt.Errorf("%w: it is a %s", driver.ErrKind, kindName[r.Kind])
		case limit == 0 && !r.Set:
			return driver.ErrGone
		case r.Kind == driver.Unused && pending == "":
			path := dir + "/" + pendingNode + rand.Text()
			if _, err := l.multiIn(ctx, dir, zk.CreateOp(path, nil, zk.Ephemeral, l.b.acl)); err != nil {
				return err
			}
			pending = path
			continue // who came before it is in the next listing, and who comes after it deletes it
		}
		if err := l.clearLatch(ctx, dir); err != nil { // one that somebody is removing
			return err
		}
		ops, err := l.limitOps(ctx, dir, &r, limit)
		if err != nil {
			return err
		}
		if r.Kind == driver.Unused {
			ops = append(ops, zk.DeleteOp(pending, zk.AnyVersion))
		}
		_, err = l.Multi(ctx, ops...)
		switch {
		case err == nil && r.Kind == driver.Unused:
			pending = ""
			return nil
		case err == nil:
			if limit == 0 {
				l.tidy(ctx, dir)
			}
			return nil
		case !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrBadVersion):
			return err
		}
		if pending != "" { // a contender may have deleted it
			if err := l.Delete(ctx, pending, zk.AnyVersion); ignore(err, zk.ErrNoNode) != nil {
				return err
			}
			pending = ""
		}
	}
	return errContention
}

// limitOps returns the operations of one step that sets the limit of a semaphore with the record r,
// or of an unused name. They fail if a folder has been created, deleted or written since.
func (l *link) limitOps(ctx context.Context, dir string, r *driver.Record, limit int) ([]zk.Op, error) {
	leases, locks, latch, own := dir+"/"+leasesDir, dir+"/"+locksDir, dir+"/"+latchNode, dir+"/"+limitNode
	absent := func(path string) []zk.Op {
		return []zk.Op{zk.CreateOp(path, nil, zk.Container, l.b.acl), zk.DeleteOp(path, zk.AnyVersion)}
	}
	// The versions are read before the limit: a limit that is set between the reads, or later, changes
	// one of them if the semaphore is in use, and the step fails.
	nodes, _ := l.GetAll(ctx, nil, leases, locks, own)
	for _, n := range nodes {
		if ignore(n.Err, zk.ErrNoNode) != nil {
			return nil, n.Err
		}
	}
	data := record{limit: cmp.Or(limit, parseRecord(nodes[2].Data).limit, r.Limit)}
	ops := absent(latch)
	switch {
	case limit == 0:
		ops = append(ops, zk.DeleteOp(own, zk.AnyVersion))
	case r.Set:
		ops = append(ops, zk.SetOp(own, data.bytes(), zk.AnyVersion))
	default:
		ops = append(ops, zk.CreateOp(own, data.bytes(), zk.Persistent, l.b.acl))
	}
	if nodes[1].Err != nil { // nobody waits
		ops = append(ops, absent(locks)...)
	} else {
		ops = append(ops, zk.SetOp(locks, data.bytes(), nodes[1].Stat.Version))
	}
	switch {
	case nodes[0].Err == nil:
		ops = append(ops, zk.SetOp(leases, data.bytes(), nodes[0].Stat.Version))
	case len(r.Holders) == 0 && r.Waiting == 0:
		ops = append(ops, absent(leases)...)
	default:
		ops = append(append(ops, zk.CreateOp(leases, data.bytes(), zk.Container, l.b.acl)), l.used(leases)...)
	}
	return ops, nil
}
