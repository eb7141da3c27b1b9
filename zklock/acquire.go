package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// errTurmoil: what was seen had changed before it could be acted upon, again and again.
var errTurmoil = fmt.Errorf("zookeeper: %w: the lock's folder changes too quickly", driver.ErrUnavailable)

// Acquire makes the request's contender, if it has none, and looks where it stands.
func (s *session) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if err := s.b.check(req.Name); err != nil {
		return driver.Reply{}, err
	}
	if most := s.b.permitsAtOnce(req.Name); req.Mode == driver.Permits && req.N > most {
		return driver.Reply{}, invalid("number of permits %d: each is a node, allowed are 1 to %d at once under a name of this length", req.N, most)
	}
	begin := time.Now()
	e, err := s.enter(ctx, req)
	if err != nil {
		return driver.Reply{}, err
	}
	defer e.unlock()
	reply, err := e.ask(ctx, req.Wait)
	switch {
	case err != nil:
		return driver.Reply{}, e.failed(ctx, err)
	case e.state == waiting:
		reply.Wake = e.listen()
		if reply.Retry == 0 { // the servers tell when it comes free; this is in case they did not
			reply.Retry = s.ttl
		}
	case e.state == idle:
		e.forget()
	}
	reply.Stale = s.stale(begin)
	return reply, nil
}

// failed is Acquire's error. What is not done must not be said of a request of which the
// servers have something, or it would stay there: nobody would take it back.
func (e *entry) failed(ctx context.Context, err error) error {
	out := explain(err)
	if errors.Is(out, driver.ErrRefused) && e.state != idle && !e.unsure { // final, so it goes
		_ = e.leave(ctx) // its state tells
	}
	switch {
	case e.state == idle && !e.unsure:
		e.forget()
	case errors.Is(out, driver.ErrUnavailable), errors.Is(out, driver.ErrRefused):
		out = fmt.Errorf("%w: %v", driver.ErrUncertain, err)
	}
	return out
}

// ask brings e to the servers and settles it.
func (e *entry) ask(ctx context.Context, wait bool) (driver.Reply, error) {
	e.fresh = nil
	list := e.s.l.list
	for range manyTries {
		var all []zk.Listing
		var err error
		if e.state == idle && !e.unsure {
			if !wait {
				reply, free, err := e.glimpse(ctx)
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
		reply, again, err := e.settle(ctx, all, wait)
		if err != nil || !again {
			return reply, err
		}
	}
	return driver.Reply{}, errTurmoil
}

// join makes e's contender and lists its folders, in one exchange.
func (e *entry) join(ctx context.Context) ([]zk.Listing, error) {
	e.checked, e.limit, e.seen = false, 0, 0 // what was seen before does not count
	dirs := e.folders()
	data := e.record()
	path, stat, all, err := e.s.l.create(ctx, dirs[0]+"/"+nodeName(e.uuid, e.suffix()), data.bytes(), dirs[1:]...)
	if path == "" {
		e.doubt(err)
		return nil, err
	}
	me, _ := parseNode(base(path))
	e.become(waiting, uint64(stat.Czxid), me)
	if me.seq < 0 || me.seq > maxSequence {
		if err := e.leave(ctx); err != nil {
			return nil, err
		}
		// An empty folder that is made again counts from zero.
		_ = e.s.l.Delete(ctx, dirs[0], zk.AnyVersion)
		return nil, fmt.Errorf("zookeeper: %w: the folder %s has had %d contenders and cannot count many more; "+
			"it starts anew when it has been empty for a while", driver.ErrRefused, dirs[0], me.seq)
	}
	if err != nil {
		return nil, err
	}
	return all, failed(all)
}

// leave deletes e's contender, of which nothing came.
func (e *entry) leave(ctx context.Context) error { return e.end(ctx, 0, false) }

// glimpse looks, without leaving anything, whether a request that does not wait could be
// granted. If not, it returns the refusal.
func (e *entry) glimpse(ctx context.Context) (driver.Reply, bool, error) {
	for range manyTries {
		all, err := e.s.l.list(ctx, e.folders()...)
		if err != nil {
			return driver.Reply{}, false, err
		}
		if e.permits() {
			return e.glimpsePermits(ctx, all)
		}
		in := read(all[0].Names)
		if err := e.sameKind(ctx, in); err != nil {
			return driver.Reply{}, false, err
		}
		way := in.way(e.role, maxSequence+1)
		if len(way) == 0 {
			return driver.Reply{}, true, nil
		}
		left, again, err := e.marksIn(ctx, way)
		if err != nil {
			return driver.Reply{}, false, err
		}
		if !again {
			reply, err := e.refuse(ctx, in, left)
			return reply, false, err
		}
	}
	return driver.Reply{}, false, errTurmoil
}

// sameKind returns ErrKind if the folder is in use as something else than a lock.
func (e *entry) sameKind(ctx context.Context, in listed) error {
	if e.checked || !in.latch && !in.semaphore {
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

// marksIn sweeps those of the marks in the way whose time is over, and says whether to look
// again. If nothing but marks is in the way, it returns how long they last.
func (e *entry) marksIn(ctx context.Context, way line) (left time.Duration, again bool, err error) {
	marks := way.marks()
	left, again, err = e.s.l.sweep(ctx, e.dir, marks)
	if len(marks) < len(way) {
		left = 0 // it is not they for whom there is to wait
	}
	return left, again, err
}

// settle decides from its folders' listings what becomes of e: granted, or not yet. again
// says that the listings are outdated.
func (e *entry) settle(ctx context.Context, all []zk.Listing, wait bool) (reply driver.Reply, again bool, err error) {
	if e.permits() {
		return e.settlePermits(ctx, all, wait)
	}
	in := read(all[0].Names)
	if err := e.sameKind(ctx, in); err != nil {
		return reply, false, e.orLeave(ctx, err)
	}
	me, ok := in.of(e.uuid)
	if !ok {
		e.become(idle, 0)
		return reply, true, nil
	}
	way := in.way(e.role, me.seq)
	if e.state == held || len(way) == 0 {
		if len(in.line) == 1 && !e.s.rivals(e.dir) {
			e.alone = time.Now()
		}
		return e.win(ctx)
	}
	left, again, err := e.marksIn(ctx, way)
	if err != nil || again {
		return reply, again, err
	}
	if !wait {
		if err := e.leave(ctx); err != nil {
			return reply, false, err
		}
		reply, err = e.refuse(ctx, in, left)
		return reply, false, err
	}
	e.s.met(e.dir)
	target, head := way[len(way)-1], in.head()
	paths := []string{e.dir + "/" + target.name}
	if head.name != target.name && !e.s.busy(e.dir) {
		paths = append(paths, e.dir+"/"+head.name)
	}
	var dirs []string
	if len(way) == 1 { // when that has just gone, the next look is likely to be the last
		dirs = e.folders()
	}
	nodes, err := e.watch(ctx, paths, dirs...)
	if errors.Is(err, zk.ErrNoNode) {
		return reply, true, nil
	}
	if err != nil {
		return reply, false, err
	}
	if e.told = target.tells(nodes[0].Data); e.told {
		e.s.sealed(e.dir)
		if e.handedOver() { // meanwhile
			return e.win(ctx)
		}
	}
	reply = driver.Reply{Retry: left, Ahead: max(0, len(in.before(me.seq))-in.holding())}
	if last := len(paths) - 1; paths[last] == e.dir+"/"+head.name {
		reply.Holder = e.s.l.holder(head, nodes[last], left)
	}
	return reply, false, nil
}

// orLeave gives up e's contender because of err, which is final, or returns why it cannot.
func (e *entry) orLeave(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrKind) {
		if lerr := e.leave(ctx); lerr != nil {
			return lerr
		}
	}
	return err
}

// watch reads nodes, and watches the first. An error is about that. Folders are listed after
// it, for relist.
func (e *entry) watch(ctx context.Context, paths []string, dirs ...string) ([]zk.Node, error) {
	e.unwatch()
	e.told = false
	nodes, w, all := e.s.l.GetAndList(ctx, zk.Handler{Soon: e.hearer(), Func: e.waker()}, paths, dirs...)
	e.watches = append(e.watches, w)
	if failed(all) == nil {
		e.fresh = all
	}
	return nodes, nodes[0].Err
}

// relist lists folders after something in them was found to have changed; the connected server
// knows of that. It need not ask if they were listed then.
func (e *entry) relist(ctx context.Context, dirs ...string) ([]zk.Listing, error) {
	if all := e.fresh; len(all) > 0 {
		e.fresh = nil
		return all, nil
	}
	return e.s.l.listHere(ctx, dirs...)
}

// refuse is the reply to a request that does not wait.
func (e *entry) refuse(ctx context.Context, in listed, left time.Duration) (driver.Reply, error) {
	head := in.head()
	nodes, _ := e.s.l.GetAll(ctx, nil, e.dir+"/"+head.name)
	if err := nodes[0].Err; err != nil && !errors.Is(err, zk.ErrNoNode) {
		return driver.Reply{}, err
	}
	return driver.Reply{
		Retry: left, Ahead: max(0, len(in.line)-in.holding()), Holder: e.s.l.holder(head, nodes[0], left),
	}, nil
}

// win makes e held: nobody is in its way. A minimum hold is marked before anybody is told,
// so that it stands if this process dies.
func (e *entry) win(ctx context.Context) (driver.Reply, bool, error) {
	if e.req.MinHold > 0 && e.marked.IsZero() {
		ops := []zk.Op{zk.CheckOp(e.path(e.nodes[0]), zk.AnyVersion)}
		marks, made := e.keep(e.nodes, e.req.MinHold)
		_, err := e.s.l.Multi(ctx, append(ops, made...)...)
		switch {
		case errors.Is(err, zk.ErrNoNode): // the contender is gone
			return driver.Reply{}, true, nil
		case err != nil && !errors.Is(err, zk.ErrNodeExists): // of an earlier try
			return driver.Reply{}, false, err
		}
		e.marks, e.marked = marks, time.Now()
	}
	e.hold()
	return driver.Reply{Token: e.token}, false, nil
}

// keep returns marks that keep the name taken for d in the place of nodes, and what makes them.
func (e *entry) keep(nodes line, d time.Duration) (marks line, ops []zk.Op) {
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

// suffixOf is what stands before the sequence number in the name of a node of ours.
func suffixOf(n node) string {
	i := slices.IndexFunc([]string{mutexSuffix, writeSuffix, readSuffix, leaseSuffix}, func(s string) bool {
		return len(n.name) > 39 && len(n.name) > 39+len(s) && n.name[39:39+len(s)] == s
	})
	return []string{mutexSuffix, writeSuffix, readSuffix, leaseSuffix}[max(i, 0)]
}
