package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A semaphore has the form of Curator's InterProcessSemaphoreV2. The folder "locks" has a lock. The
// folder "leases" has a node for each permit in use, and only the holder of that lock adds nodes to
// it. So the lock is the queue, and its holder is the one that waits for permits. Curator adds its
// node first and then waits until the permits fit. Holdfast adds its nodes only when they fit, in
// the same step in which its contender leaves the queue. The data of "leases" contains the limit.

// maxPermits is how many permits a request can have: one ZooKeeper request creates them all.
const maxPermits = 1000

// permitsAtOnce returns how many permits fit into a ZooKeeper request, also when they move and are
// marked.
func (b *Backend) permitsAtOnce(name string) int {
	const request, each = 1 << 20, 600 // the servers' default; the size of an Op without the path
	return min(maxPermits, request/(4*len(b.folder(name))+each))
}

// semaphore is the contents of a semaphore's folders.
type semaphore struct {
	queue, leases queue
	top           contents
}

func readSemaphore(all []zk.Listing) semaphore {
	return semaphore{parseDir(all[0].Names).queue, permitsOf(parseDir(all[1].Names).queue), parseDir(all[2].Names)}
}

// onlyPermits returns ErrKind if the name is in use as a lock or a latch.
func (e *entry) onlyPermits(ctx context.Context, top contents) error {
	if e.checked {
		return nil
	}
	if top.latch || len(top.queue) > 0 {
		kind, err := e.s.l.otherThan(ctx, e.dir, driver.Semaphore)
		if err != nil {
			return err
		}
		if kind != "" {
			return fmt.Errorf("%w: it is a %s", driver.ErrKind, kind)
		}
	}
	return nil
}

// limit returns the limit in use, 0 if none is known, and the version of the node that contains it.
func (l *link) limit(ctx context.Context, leases string) (int, int32, error) {
	data, stat, err := l.Get(ctx, leases)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, zk.AnyVersion, nil
	}
	r := parseRecord(data)
	return r.limit, stat.Version, err
}

// probePermits is probe for a semaphore.
func (e *entry) probePermits(ctx context.Context, all []zk.Listing) (reply driver.Reply, free bool, err error) {
	e.checked = false
	sem := readSemaphore(all)
	if err := e.onlyPermits(ctx, sem.top); err != nil {
		return reply, false, err
	}
	set := 0
	if sem.top.limit || e.req.Limit == 0 {
		if set, err = e.s.l.setLimitOf(ctx, e.dir); err != nil {
			return reply, false, err
		}
	}
	if set == 0 && len(sem.queue) == 0 && len(sem.leases) == 0 {
		return reply, true, e.sameLimit(0, 0)
	}
	left, swept, err := e.sweepLeases(ctx, sem.leases)
	if err != nil {
		return reply, false, err
	}
	limit := set
	switch {
	case set != 0:
	case len(sem.leases) == 0:
		limit, err = e.s.l.limitOfWaiters(ctx, e.dir, e.path(sem.queue[0]))
	case !swept:
		limit, _, err = e.s.l.limit(ctx, e.dir+"/"+leasesDir)
	}
	if err == nil {
		err = e.sameLimit(limit, set)
	}
	if err != nil {
		return reply, false, err
	}
	if len(sem.queue) == 0 && (swept || sem.leases.permits()+e.req.N <= cmp.Or(set, e.req.Limit)) {
		return reply, true, nil
	}
	reply, err = e.refusePermits(ctx, sem, left)
	return reply, false, err
}

// sweepLeases deletes kept permits whose time is over.
func (e *entry) sweepLeases(ctx context.Context, leases queue) (time.Duration, bool, error) {
	return e.s.l.sweep(ctx, e.dir+"/"+leasesDir, leases.marks())
}

// refusePermits returns the reply to a request that does not wait.
func (e *entry) refusePermits(ctx context.Context, sem semaphore, left time.Duration) (driver.Reply, error) {
	reply := driver.Reply{Retry: left, Ahead: len(sem.queue)}
	if len(sem.leases) == 0 {
		return reply, nil
	}
	head := sem.leases.head()
	nodes, _ := e.s.l.GetAll(ctx, nil, e.path(head))
	reply.Holder = e.s.l.holder(head, nodes[0], left)
	return reply, nil
}

// evaluatePermits is evaluate for a semaphore.
func (e *entry) evaluatePermits(ctx context.Context, all []zk.Listing, wait bool) (
	reply driver.Reply, again bool, err error) {
	if e.state == held {
		return e.completeGrant(ctx)
	}
	sem := readSemaphore(all)
	if err := e.refuseLatches(ctx, &sem.top); err != nil {
		return reply, false, err
	}
	if err := e.onlyPermits(ctx, sem.top); err != nil {
		return reply, false, e.withdrawOnKind(ctx, err)
	}
	me, ok := sem.queue.find(e.uuid)
	if !ok {
		if err := e.look(ctx); err != nil { // e may have the permits already
			return reply, false, err
		}
		return reply, true, nil
	}
	left, swept, err := e.sweepLeases(ctx, sem.leases)
	if err != nil || swept {
		return reply, swept, err
	}
	ahead := len(sem.queue.before(me.seq))
	limit, at := e.req.Limit, limits{leases: zk.AnyVersion, locks: zk.AnyVersion}
	inUse := len(sem.leases) > 0 || e.checked
	if inUse || sem.top.limit || e.req.Limit == 0 {
		at, err = e.limits(ctx, inUse)
		if err == nil && at.changed == 0 { // otherwise it has changed since e joined, so e stays
			err = e.sameLimit(at.known, at.set)
		}
		if err != nil {
			return reply, false, e.withdrawOnKind(ctx, err)
		}
		now := cmp.Or(at.known, at.changed)
		e.checked = inUse || now != 0 // from now on a waiter accepts changes of the limit
		if now != 0 {
			e.limit = now
		}
		if e.limit != 0 {
			limit = e.limit
		}
	}
	if ahead > 0 {
		if !e.checked {
			e.limit, err = e.s.l.limitOfWaiters(ctx, e.dir, e.path(sem.queue[0]))
			if err == nil {
				err = e.sameLimit(e.limit, 0)
			}
			if err != nil {
				return reply, false, e.withdrawOnKind(ctx, err)
			}
			e.checked = e.limit != 0
		}
		if !wait {
			return e.withdrawAndRefuse(ctx, sem, 0)
		}
		nodes, err := e.watch(ctx, []string{e.path(sem.queue.before(me.seq)[ahead-1])})
		if errors.Is(err, zk.ErrNoNode) {
			return reply, true, nil
		}
		reply = driver.Reply{Ahead: ahead, Holder: e.s.l.holder(sem.queue.before(me.seq)[ahead-1], nodes[0], 0)}
		if len(sem.leases) > 0 {
			nodes, _ := e.s.l.GetAll(ctx, nil, e.path(sem.leases.head()))
			reply.Holder = e.s.l.holder(sem.leases.head(), nodes[0], 0)
		}
		return reply, false, err
	}
	if sem.leases.permits()+e.req.N <= limit {
		return e.takePermits(ctx, len(sem.leases) == 0 && !e.checked, at)
	}
	if at.leases == zk.AnyVersion {
		return reply, true, e.rewriteLimit(ctx, at)
	}
	if !wait {
		return e.withdrawAndRefuse(ctx, sem, left)
	}
	return e.watchPermits(ctx, sem, limit, left)
}

// rewriteLimit writes the limit again, after the servers deleted the folder that had it because it
// was empty. That happens when the limit is below what the first waiter wants: no permit is then in
// use.
func (e *entry) rewriteLimit(ctx context.Context, at limits) error {
	err := e.s.l.createLimit(ctx, e.dir+"/"+leasesDir, e.limit, zk.CheckOp(e.dir+"/"+locksDir, at.locks))
	return ignore(ignore(err, zk.ErrNodeExists), zk.ErrBadVersion) // a limit has been set
}

// createLimit creates the folder of the permits with the limit as its data. It carries out the
// operations in also in the same step.
func (l *link) createLimit(ctx context.Context, leases string, limit int, also ...zk.Op) error {
	r := record{limit: limit}
	ops := append([]zk.Op{zk.CreateOp(leases, r.bytes(), zk.Container, l.b.acl)}, l.used(leases)...)
	_, err := l.multiIn(ctx, parent(leases), append(ops, also...)...)
	return err
}

// withdrawAndRefuse withdraws the contender of a request that does not wait, and returns the
// refusal.
func (e *entry) withdrawAndRefuse(ctx context.Context, sem semaphore, left time.Duration) (driver.Reply, bool, error) {
	if err := e.withdraw(ctx); err != nil {
		return driver.Reply{}, false, err
	}
	reply, err := e.refusePermits(ctx, sem, left)
	return reply, false, err
}

// takePermits adds e's permits to the leases and removes e from the queue, in one step. The first
// user of a semaphore writes its limit.
func (e *entry) takePermits(ctx context.Context, first bool, at limits) (driver.Reply, bool, error) {
	leases, limit := e.dir+"/"+leasesDir, e.req.Limit
	if first {
		var err error
		if at, err = e.limits(ctx, false); err != nil {
			return driver.Reply{}, false, err
		}
		if at.changed != 0 { // set while e waited, so the semaphore was in use
			e.limit, e.checked = at.changed, true
			return driver.Reply{}, true, nil
		}
		if at.set != 0 && at.set != limit { // set before e joined, and the listing was older
			return driver.Reply{}, true, nil
		}
	} else if e.limit != 0 {
		limit = e.limit
	}
	data := record{limit: limit}
	// Somebody may set a limit at this moment, which changes the version of the queue's folder. The
	// version of leases does not show it: the servers may have deleted that folder, and SetLimit may
	// have created it again, with the same version.
	ops := []zk.Op{zk.CheckOp(e.dir+"/"+locksDir, at.locks)}
	switch {
	case at.leases == zk.AnyVersion: // there is no folder
		ops = append(ops, zk.CreateOp(leases, data.bytes(), zk.Container, e.s.b.acl))
	case at.inLeases != limit: // of an earlier use, or none: Curator writes no limit
		ops = append(ops, zk.SetOp(leases, data.bytes(), at.leases))
	}
	settings := len(ops)
	r := e.record()
	for range e.req.N {
		ops = append(ops, zk.CreateOp(leases+"/"+nodeName(e.uuid, leaseSuffix), r.bytes(), zk.EphemeralSequential, e.s.b.acl))
		r.info = ""
	}
	ops = append(ops, zk.DeleteOp(e.path(e.nodes[0]), zk.AnyVersion))
	made, err := e.s.l.Multi(ctx, ops...)
	switch {
	case errors.Is(err, zk.ErrNoNode): // somebody deleted the folder or the contender
		return driver.Reply{}, true, e.look(ctx)
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
		return driver.Reply{}, true, nil
	case err != nil:
		e.noteUncertain(err)
		return driver.Reply{}, false, err
	}
	var nodes queue
	for _, m := range made[settings : settings+e.req.N] {
		n, _ := parseNode(base(m.Path))
		nodes = append(nodes, n)
	}
	e.setState(held, uint64(made[settings].Stat.Czxid), nodes...)
	if slices.ContainsFunc(nodes, func(n node) bool { return n.seq < 0 || n.seq > maxSequence }) {
		err := fmt.Errorf(
			"zookeeper: %w: the folder %s cannot count many more permits; it counts from zero again when it has been empty for a while", driver.ErrRefused, leases)
		return driver.Reply{}, false, errors.Join(err, e.withdraw(ctx))
	}
	e.checked = true
	return e.completeGrant(ctx)
}

// watchPermits makes e, the first waiter, wait for free permits or a higher limit.
func (e *entry) watchPermits(ctx context.Context, sem semaphore, limit int, left time.Duration) (
	driver.Reply, bool, error) {
	leases := e.dir + "/" + leasesDir
	e.unwatch()
	names, _, w, err := e.s.l.ChildrenW(ctx, leases, e.onEvent())
	e.watches = append(e.watches, w)
	if err != nil {
		return driver.Reply{}, errors.Is(err, zk.ErrNoNode), ignore(err, zk.ErrNoNode)
	}
	paths := []string{leases}
	if len(sem.leases) > 0 { // no permit is in use if the limit is below what e wants
		paths = append(paths, e.path(sem.leases.head()))
	}
	nodes, w := e.s.l.GetAll(ctx, e.onEvent(), paths...)
	e.watches = append(e.watches, w)
	if err := nodes[0].Err; err != nil {
		return driver.Reply{}, errors.Is(err, zk.ErrNoNode), ignore(err, zk.ErrNoNode)
	}
	if r := parseRecord(nodes[0].Data); r.limit != 0 && r.limit != limit ||
		len(permitsOf(parseDir(names).queue)) != len(sem.leases) {
		return driver.Reply{}, true, nil // the folder changed before the watch was set
	}
	reply := driver.Reply{Retry: left}
	if len(nodes) > 1 {
		reply.Holder = e.s.l.holder(sem.leases.head(), nodes[1], left)
	}
	return reply, false, nil
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
