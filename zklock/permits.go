package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// A semaphore is kept as Curator's InterProcessSemaphoreV2 does it: a lock in the folder
// "locks", and in the folder "leases" a node for each permit in use, which only the holder of
// that lock adds to. So the lock is the line, and its holder is the one who waits for
// permits. Unlike Curator we add to the leases when they fit and not before, in the same step
// in which the contender leaves the line; and the data of "leases" says the limit.

// maxPermits is how many permits can be had at once: all are made in one request.
const maxPermits = 1000

// permitsAtOnce is how many of them fit into a request, also when they move and are marked.
func (b *Backend) permitsAtOnce(name string) int {
	const request, each = 1 << 20, 600 // what servers take by default; what an Op has beside the folder
	return min(maxPermits, request/(4*len(b.folder(name))+each))
}

// semaphore is what its folders say.
type semaphore struct {
	line, leases line
	top          listed
}

func readSemaphore(all []zk.Listing) semaphore {
	return semaphore{read(all[0].Names).line, permitsOf(read(all[1].Names).line), read(all[2].Names)}
}

// onlyPermits returns ErrKind if the name is in use as a lock or a latch.
func (e *entry) onlyPermits(ctx context.Context, top listed) error {
	if e.checked {
		return nil
	}
	if top.latch || len(top.line) > 0 {
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

// limit returns the limit in use and the version of the node that says it; 0: none is known.
func (l *link) limit(ctx context.Context, leases string) (int, int32, error) {
	data, stat, err := l.Get(ctx, leases)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, zk.AnyVersion, nil
	}
	r := parseRecord(data)
	return r.limit, stat.Version, err
}

// limits is what the folders of a semaphore say of its limit.
type limits struct {
	known  int   // in use; 0: none is known
	leases int32 // the version of the folder that says so; AnyVersion: there is none
	locks  int32 // the version of the folder of the line
	set    int   // the limit that was set since e joined and had last looked; 0: none was
}

// limits looks at both folders. A limit that is set is in that of the line, too, which stays as long as somebody
// stands in it: that of the permits is deleted when it has been empty for a while.
func (e *entry) limits(ctx context.Context) (l limits, err error) {
	nodes, _ := e.s.l.GetAll(ctx, nil, e.dir+"/"+leasesDir, e.dir+"/"+locksDir)
	l.leases, l.locks = zk.AnyVersion, zk.AnyVersion
	since := max(e.seen, int64(e.token))
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			continue
		}
		if n.Err != nil {
			return l, n.Err
		}
		e.seen = max(e.seen, n.Stat.Mzxid)
		limit := parseRecord(n.Data).limit
		switch {
		case i == 0:
			l.known, l.leases = limit, n.Stat.Version
		case n.Stat.Mzxid > since:
			l.set, l.locks = limit, n.Stat.Version
		default:
			l.locks = n.Stat.Version
		}
	}
	return l, nil
}

// sameLimit returns ErrKind if the semaphore is in use with another limit than e asked for.
func (e *entry) sameLimit(limit int) error {
	if e.checked || limit == 0 || limit == e.req.Limit {
		return nil
	}
	return fmt.Errorf("%w: it is a semaphore of %d", driver.ErrKind, limit)
}

// glimpsePermits is glimpse for a semaphore.
func (e *entry) glimpsePermits(ctx context.Context, all []zk.Listing) (reply driver.Reply, free bool, err error) {
	e.checked = false
	sem := readSemaphore(all)
	if err := e.onlyPermits(ctx, sem.top); err != nil {
		return reply, false, err
	}
	if len(sem.line) == 0 && len(sem.leases) == 0 {
		return reply, true, nil
	}
	left, swept, err := e.sweepLeases(ctx, sem.leases)
	if err != nil {
		return reply, false, err
	}
	limit, _, err := e.s.l.limit(ctx, e.dir+"/"+leasesDir)
	if err == nil && len(sem.leases) > 0 && !swept {
		err = e.sameLimit(limit)
	}
	if err != nil {
		return reply, false, err
	}
	if len(sem.line) == 0 && (swept || sem.leases.permits()+e.req.N <= e.req.Limit) {
		return reply, true, nil
	}
	reply, err = e.refusePermits(ctx, sem, left)
	return reply, false, err
}

// sweepLeases deletes permits that were kept and whose time is over.
func (e *entry) sweepLeases(ctx context.Context, leases line) (time.Duration, bool, error) {
	return e.s.l.sweep(ctx, e.dir+"/"+leasesDir, leases.marks())
}

// refusePermits is the reply to a request that does not wait.
func (e *entry) refusePermits(ctx context.Context, sem semaphore, left time.Duration) (driver.Reply, error) {
	reply := driver.Reply{Retry: left, Ahead: len(sem.line)}
	if len(sem.leases) == 0 {
		return reply, nil
	}
	head := sem.leases.head()
	nodes, _ := e.s.l.GetAll(ctx, nil, e.path(head))
	reply.Holder = e.s.l.holder(head, nodes[0], left)
	return reply, nil
}

// settlePermits is settle for a semaphore.
func (e *entry) settlePermits(ctx context.Context, all []zk.Listing, wait bool) (reply driver.Reply, again bool, err error) {
	if e.state == held {
		return e.win(ctx)
	}
	sem := readSemaphore(all)
	if err := e.onlyPermits(ctx, sem.top); err != nil {
		return reply, false, e.orLeave(ctx, err)
	}
	me, ok := sem.line.of(e.uuid)
	if !ok {
		if err := e.look(ctx); err != nil { // it may have the permits by now
			return reply, false, err
		}
		return reply, true, nil
	}
	left, swept, err := e.sweepLeases(ctx, sem.leases)
	if err != nil || swept {
		return reply, swept, err
	}
	ahead := len(sem.line.before(me.seq))
	limit, at := e.req.Limit, limits{leases: zk.AnyVersion, locks: zk.AnyVersion}
	if len(sem.leases) > 0 || e.checked {
		at, err = e.limits(ctx)
		if err == nil {
			err = e.sameLimit(at.known)
		}
		if err != nil {
			return reply, false, e.orLeave(ctx, err)
		}
		e.checked = true // who stands in line follows when the limit is changed
		if now := cmp.Or(at.known, at.set); now != 0 {
			e.limit = now
		}
		if e.limit != 0 {
			limit = e.limit
		}
	}
	if ahead > 0 {
		if !wait {
			return e.turnAway(ctx, sem, 0)
		}
		nodes, err := e.watch(ctx, []string{e.path(sem.line.before(me.seq)[ahead-1])})
		if errors.Is(err, zk.ErrNoNode) {
			return reply, true, nil
		}
		reply = driver.Reply{Ahead: ahead, Holder: e.s.l.holder(sem.line.before(me.seq)[ahead-1], nodes[0], 0)}
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
		return reply, true, e.restate(ctx, at)
	}
	if !wait {
		return e.turnAway(ctx, sem, left)
	}
	return e.watchPermits(ctx, sem, limit, left)
}

// restate says the limit anew after the folder that said it was deleted because it was
// empty: with a limit below what the first in line wants, nobody uses a permit.
func (e *entry) restate(ctx context.Context, at limits) error {
	err := e.s.l.sayLimit(ctx, e.dir+"/"+leasesDir, e.limit, zk.CheckOp(e.dir+"/"+locksDir, at.locks))
	return ignore(ignore(err, zk.ErrNodeExists), zk.ErrBadVersion) // then a limit has been set
}

// sayLimit makes the folder of the permits, which says the limit, and carries out other ops with it.
func (l *link) sayLimit(ctx context.Context, leases string, limit int, also ...zk.Op) error {
	r := record{limit: limit}
	ops := append([]zk.Op{zk.CreateOp(leases, r.bytes(), zk.Container, l.b.acl)}, l.used(leases)...)
	_, err := l.multiIn(ctx, parent(leases), append(ops, also...)...)
	return err
}

// turnAway gives up the contender of a request that does not wait.
func (e *entry) turnAway(ctx context.Context, sem semaphore, left time.Duration) (driver.Reply, bool, error) {
	if err := e.leave(ctx); err != nil {
		return driver.Reply{}, false, err
	}
	reply, err := e.refusePermits(ctx, sem, left)
	return reply, false, err
}

// takePermits adds e's permits to the leases and takes e out of the line, in one step. Who uses
// the semaphore first says its limit.
func (e *entry) takePermits(ctx context.Context, first bool, at limits) (driver.Reply, bool, error) {
	leases, limit := e.dir+"/"+leasesDir, e.req.Limit
	if first {
		var err error
		if at, err = e.limits(ctx); err != nil {
			return driver.Reply{}, false, err
		}
		if at.set != 0 { // while e stood in line, so it was in use
			e.limit, e.checked = at.set, true
			return driver.Reply{}, true, nil
		}
	} else if e.limit != 0 {
		limit = e.limit
	}
	data := record{limit: limit}
	var ops []zk.Op
	switch {
	case at.leases == zk.AnyVersion: // there is no folder, and a limit may be set just now
		ops = append(ops, zk.CheckOp(e.dir+"/"+locksDir, at.locks), zk.CreateOp(leases, data.bytes(), zk.Container, e.s.b.acl))
	case !first: // the same
		ops = append(ops, zk.CheckOp(leases, at.leases))
	case at.known != limit:
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
	case errors.Is(err, zk.ErrNoNode): // the folder was deleted meanwhile, or the contender
		return driver.Reply{}, true, e.look(ctx)
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
		return driver.Reply{}, true, nil
	case err != nil:
		e.doubt(err)
		return driver.Reply{}, false, err
	}
	var nodes line
	for _, m := range made[settings : settings+e.req.N] {
		n, _ := parseNode(base(m.Path))
		nodes = append(nodes, n)
	}
	e.become(held, uint64(made[settings].Stat.Czxid), nodes...)
	if slices.ContainsFunc(nodes, func(n node) bool { return n.seq < 0 || n.seq > maxSequence }) {
		err := fmt.Errorf("zookeeper: %w: the folder %s cannot count many more permits; it starts anew when it has been empty for a while", driver.ErrRefused, leases)
		return driver.Reply{}, false, errors.Join(err, e.leave(ctx))
	}
	e.checked = true
	return e.win(ctx)
}

// watchPermits makes e, the first in line, wait for permits that come back, or a higher limit.
func (e *entry) watchPermits(ctx context.Context, sem semaphore, limit int, left time.Duration) (driver.Reply, bool, error) {
	leases := e.dir + "/" + leasesDir
	e.unwatch()
	names, _, w, err := e.s.l.ChildrenW(ctx, leases, e.waker())
	e.watches = append(e.watches, w)
	if err != nil {
		return driver.Reply{}, errors.Is(err, zk.ErrNoNode), ignore(err, zk.ErrNoNode)
	}
	paths := []string{leases}
	if len(sem.leases) > 0 { // none is in use when the limit is below what e wants
		paths = append(paths, e.path(sem.leases.head()))
	}
	nodes, w := e.s.l.GetAll(ctx, e.waker(), paths...)
	e.watches = append(e.watches, w)
	if err := nodes[0].Err; err != nil {
		return driver.Reply{}, errors.Is(err, zk.ErrNoNode), ignore(err, zk.ErrNoNode)
	}
	if r := parseRecord(nodes[0].Data); r.limit != 0 && r.limit != limit || len(permitsOf(read(names).line)) != len(sem.leases) {
		return driver.Reply{}, true, nil // it has changed before it was watched
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
