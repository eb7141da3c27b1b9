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

// errContention: each time, the folder changed between the read and the step that depended on it.
var errContention = fmt.Errorf("zookeeper: %w: the lock's folder changes too quickly", driver.ErrUnavailable)

// Acquire creates the request's contender, if it has none, and finds out its place.
func (s *session) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if err := cmp.Or(s.b.check(req.Name), req.CheckTokens(s.b.Kinds())); err != nil {
		return driver.Reply{}, err
	}
	if most := s.b.permitsAtOnce(req.Name); req.Mode == driver.Permits && req.N > most {
		return driver.Reply{},
			invalid("number of permits %d: each is a node, allowed are 1 to %d at once under a name of this length", req.N, most)
	}
	begin := time.Now()
	e, err := s.register(ctx, req)
	if err != nil {
		return driver.Reply{}, err
	}
	defer e.unlock()
	reply, err := e.acquire(ctx, req.Wait)
	switch {
	case err != nil:
		return driver.Reply{}, e.failed(ctx, err)
	case e.state == waiting:
		reply.Wake = e.newWake()
		// The watch reports when the lock is free; this is in case it does not.
		if reply.Retry == 0 {
			reply.Retry = s.ttl
		}
	case e.state == idle:
		e.forget()
	}
	reply.Stale = s.stale(begin)
	return reply, nil
}

// failed returns Acquire's error. It must not report "nothing was done" if the servers have
// something of the request: nobody would cancel it.
func (e *entry) failed(ctx context.Context, err error) error {
	out := explain(err)
	if errors.Is(out, driver.ErrRefused) && e.state != idle && !e.unsure { // final: leave nothing
		_ = e.withdraw(ctx) // e.state shows whether it worked
	}
	switch {
	case e.state == idle && !e.unsure:
		e.forget()
	case errors.Is(out, driver.ErrUnavailable), errors.Is(out, driver.ErrRefused),
		errors.Is(out, driver.ErrClosed) && e.req.MinHold > 0: // the session has taken everything but the marks of the hold
		out = fmt.Errorf("%w: %v", driver.ErrUncertain, err)
	}
	return out
}

// acquire sends e to the servers and decides what it got.
func (e *entry) acquire(ctx context.Context, wait bool) (driver.Reply, error) {
	e.fresh = nil
	list := e.s.l.list
	for range manyTries {
		var all []zk.Listing
		var err error
		if e.state == idle && !e.unsure {
			if !wait {
				reply, free, err := e.probe(ctx)
				if err != nil || !free {
					return reply, err
				}
			}
			all, err = e.join(ctx)
		} else if all, err = list(ctx, e.folders()...); err == nil {
			err = e.find(ctx, all)
		}
		if err != nil {
			return driver.Reply{}, err
		}
		list = e.relist
		if e.state == idle {
			continue
		}
		reply, again, err := e.evaluate(ctx, all, wait)
		if err != nil || !again {
			return reply, err
		}
	}
	return driver.Reply{}, errContention
}

// join creates e's contender and lists its folders, in one exchange.
func (e *entry) join(ctx context.Context) ([]zk.Listing, error) {
	e.checked, e.limit, e.seen = false, 0, 0 // what an earlier contender saw does not count
	dirs := e.folders()
	data := e.record()
	path, stat, all, err := e.s.l.create(ctx, dirs[0]+"/"+nodeName(e.uuid, e.suffix()), data.bytes(), dirs[1:]...)
	if path == "" {
		e.noteUncertain(err)
		return nil, err
	}
	me, _ := parseNode(base(path))
	e.setState(waiting, uint64(stat.Czxid), me)
	if me.seq < 0 || me.seq > maxSequence {
		if err := e.withdraw(ctx); err != nil {
			return nil, err
		}
		// ZooKeeper counts from zero in an empty folder that is created again.
		_ = e.s.l.Delete(ctx, dirs[0], zk.AnyVersion)
		return nil, fmt.Errorf("zookeeper: %w: the folder %s has had %d contenders and cannot count many more; "+
			"it counts from zero again when it has been empty for a while", driver.ErrRefused, dirs[0], me.seq)
	}
	if err != nil {
		return nil, err
	}
	return all, failed(all)
}

// withdraw deletes e's contender, which has got nothing.
func (e *entry) withdraw(ctx context.Context) error { return e.end(ctx, 0, false) }

// probe finds out, without writing anything, whether a request that does not wait could be granted.
// If not, it returns the refusal.
func (e *entry) probe(ctx context.Context) (driver.Reply, bool, error) {
	for range manyTries {
		all, err := e.s.l.list(ctx, e.folders()...)
		if err != nil {
			return driver.Reply{}, false, err
		}
		if e.permits() {
			return e.probePermits(ctx, all)
		}
		in := parseDir(all[0].Names)
		if err := e.sameKind(ctx, in); err != nil {
			return driver.Reply{}, false, err
		}
		blockers := in.blockers(e.role, maxSequence+1)
		if len(blockers) == 0 {
			return driver.Reply{}, true, nil
		}
		left, again, err := e.marksIn(ctx, blockers)
		if err != nil {
			return driver.Reply{}, false, err
		}
		if !again {
			reply, err := e.refuse(ctx, in, left)
			return reply, false, err
		}
	}
	return driver.Reply{}, false, errContention
}

// sameKind returns ErrKind if the folder is in use as something other than a lock.
func (e *entry) sameKind(ctx context.Context, in contents) error {
	if e.checked || !in.latch && !in.semaphore && !in.limit {
		e.checked = true
		return nil
	}
	kind, err := e.s.l.otherThan(ctx, e.dir, driver.Lock)
	if err == nil && kind != "" {
		err = fmt.Errorf("%w: it is a %s", driver.ErrKind, kind)
	}
	e.checked = err == nil
	return err
}

// marksIn deletes those marks among blockers whose time is over, and reports whether to list again.
// If only marks are in the way, it returns how long they last.
func (e *entry) marksIn(ctx context.Context, blockers queue) (left time.Duration, again bool, err error) {
	marks := blockers.marks()
	left, again, err = e.s.l.sweep(ctx, e.dir, marks)
	if len(marks) < len(blockers) {
		left = 0 // others are in the way, too
	}
	return left, again, err
}

// evaluate decides from its folders' listings whether e is granted. again reports that the listings
// are outdated.
func (e *entry) evaluate(ctx context.Context, all []zk.Listing, wait bool) (reply driver.Reply, again bool, err error) {
	if e.permits() {
		return e.evaluatePermits(ctx, all, wait)
	}
	in := parseDir(all[0].Names)
	if err := e.refuseLatches(ctx, &in); err != nil {
		return reply, false, err
	}
	if err := e.sameKind(ctx, in); err != nil {
		return reply, false, e.withdrawOnKind(ctx, err)
	}
	me, ok := in.find(e.uuid)
	if !ok {
		e.setState(idle, 0)
		return reply, true, nil
	}
	blockers := in.blockers(e.role, me.seq)
	if e.state == held || len(blockers) == 0 {
		if len(in.queue) == 1 && !e.s.contended(e.dir) {
			e.aloneAt = time.Now()
		}
		return e.completeGrant(ctx)
	}
	left, again, err := e.marksIn(ctx, blockers)
	if err != nil || again {
		return reply, again, err
	}
	if !wait {
		if err := e.withdraw(ctx); err != nil {
			return reply, false, err
		}
		reply, err = e.refuse(ctx, in, left)
		return reply, false, err
	}
	e.s.noteContended(e.dir)
	target, head := blockers[len(blockers)-1], in.head()
	paths := []string{e.dir + "/" + target.name}
	if head.name != target.name && !e.s.grantedRecently(e.dir) {
		paths = append(paths, e.dir+"/"+head.name)
	}
	var dirs []string
	if len(blockers) == 1 { // if that node has just gone, the next listing probably grants the lock
		dirs = e.folders()
	}
	nodes, err := e.watch(ctx, paths, dirs...)
	if errors.Is(err, zk.ErrNoNode) {
		return reply, true, nil
	}
	if err != nil {
		return reply, false, err
	}
	if e.changeHandsOver = target.announcesRelease(nodes[0].Data); e.changeHandsOver {
		e.s.testACLsSoon(e.dir)
		if e.handedOver() { // between the read and now
			return e.completeGrant(ctx)
		}
	}
	reply = driver.Reply{Retry: left, Ahead: max(0, len(in.before(me.seq))-in.holding())}
	if last := len(paths) - 1; paths[last] == e.dir+"/"+head.name {
		reply.Holder = e.s.l.holder(head, nodes[last], left)
	}
	return reply, false, nil
}

// withdrawOnKind withdraws e's contender if err is ErrKind or ErrNoLimit, which are final. It returns
// err, or why it could not withdraw.
func (e *entry) withdrawOnKind(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrNoLimit) {
		if lerr := e.withdraw(ctx); lerr != nil {
			return lerr
		}
	}
	return err
}

// watch reads nodes and watches the first. The error is that of the first. After that it lists
// dirs, for relist.
func (e *entry) watch(ctx context.Context, paths []string, dirs ...string) ([]zk.Node, error) {
	e.unwatch()
	e.changeHandsOver = false
	nodes, w, all := e.s.l.GetAndList(ctx, zk.Handler{Soon: e.onHandOver(), Func: e.onEvent()}, paths, dirs...)
	e.watches = append(e.watches, w)
	if failed(all) == nil {
		e.fresh = all
	}
	return nodes, nodes[0].Err
}

// relist lists folders after something in them has changed. The connected server knows of the
// change. If watch has listed the folders, relist returns that listing once.
func (e *entry) relist(ctx context.Context, dirs ...string) ([]zk.Listing, error) {
	if all := e.fresh; len(all) > 0 {
		e.fresh = nil
		return all, nil
	}
	return e.s.l.listHere(ctx, dirs...)
}

// refuse returns the reply to a request that does not wait. If the head of the listing has gone, it lists again:
// then the mark of its minimum hold is in the way, or somebody else. It names no holder if nothing is.
func (e *entry) refuse(ctx context.Context, in contents, left time.Duration) (reply driver.Reply, err error) {
	for range manyTries {
		head := in.head()
		nodes, _ := e.s.l.GetAll(ctx, nil, e.dir+"/"+head.name)
		if err := nodes[0].Err; err != nil && !errors.Is(err, zk.ErrNoNode) {
			return driver.Reply{}, err
		}
		reply = driver.Reply{
			Retry: left, Ahead: max(0, len(in.queue)-in.holding()), Holder: e.s.l.holder(head, nodes[0], left),
		}
		if reply.Holder != nil {
			break
		}
		all, err := e.s.l.list(ctx, e.folders()...)
		if err != nil {
			return driver.Reply{}, err
		}
		in = parseDir(all[0].Names)
		blockers := in.blockers(e.role, maxSequence+1)
		if len(blockers) == 0 {
			break
		}
		if left, _, err = e.marksIn(ctx, blockers); err != nil {
			return driver.Reply{}, err
		}
	}
	return reply, nil
}

// completeGrant makes e held: nobody is in its way. It marks a minimum hold before anybody learns
// of the grant, so that the minimum hold is kept if this process dies.
func (e *entry) completeGrant(ctx context.Context) (driver.Reply, bool, error) {
	if e.req.MinHold > 0 && e.marked.IsZero() {
		ops := []zk.Op{zk.CheckOp(e.path(e.nodes[0]), zk.AnyVersion)}
		marks, made := e.keep(e.nodes, e.req.MinHold)
		_, err := e.s.l.Multi(ctx, append(ops, made...)...)
		switch {
		case errors.Is(err, zk.ErrNoNode): // somebody deleted the contender
			return driver.Reply{}, true, nil
		case err != nil && !errors.Is(err, zk.ErrNodeExists): // an earlier attempt created the mark
			return driver.Reply{}, false, err
		}
		e.marks, e.marked = marks, time.Now()
	}
	e.setHeld()
	return driver.Reply{Token: e.token}, false, nil
}

// keep returns marks that keep the name taken for d in the place of nodes, and the operations that
// create them.
func (e *entry) keep(nodes queue, d time.Duration) (marks queue, ops []zk.Op) {
	r := e.record()
	r.token, r.keep = e.token, d
	for i, n := range nodes {
		m := n
		m.uuid = keptUUID(n.uuid)
		m.name = sequenced(m.uuid, suffixOf(n), n.seq)
		marks = append(marks, m)
		if i > 0 {
			r.info = ""
		}
		ops = append(ops, zk.CreateOp(e.path(m), r.bytes(), zk.Persistent, e.s.b.acl))
	}
	return marks, ops
}

// suffixOf returns what stands before the sequence number in the name of a node that holdfast
// created.
func suffixOf(n node) string {
	i := slices.IndexFunc([]string{mutexSuffix, writeSuffix, readSuffix, leaseSuffix}, func(s string) bool {
		return len(n.name) > 39 && len(n.name) > 39+len(s) && n.name[39:39+len(s)] == s
	})
	return []string{mutexSuffix, writeSuffix, readSuffix, leaseSuffix}[max(i, 0)]
}
