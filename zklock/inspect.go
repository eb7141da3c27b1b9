package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// holder describes a contender, or returns nil if its node could not be read. left is how
// long a mark lasts, if that is known.
func (l *link) holder(n node, data zk.Node, left time.Duration) *driver.Holder {
	if data.Err != nil {
		return nil
	}
	r := parseRecord(data.Data)
	h := &driver.Holder{
		ID: r.id, Mode: n.role.mode(), N: max(1, r.n), Token: uint64(data.Stat.Czxid), Info: r.info, Kept: n.kept(), Left: r.ttl,
	}
	if r.id == "" {
		h.ID = n.name
	}
	if r.n > 0 { // in a semaphore's line
		h.Mode = driver.Permits
	}
	if r.token != 0 {
		h.Token = r.token
	}
	clock := l.known()
	if clock > data.Stat.Ctime && data.Stat.Ctime > 0 {
		h.Age = time.Duration(clock-data.Stat.Ctime) * time.Millisecond
	}
	if h.Kept {
		h.Left = left
		if left == 0 && clock > 0 {
			h.Left = max(0, keptFor(&r, &data.Stat, clock))
		}
	}
	return h
}

// known is the servers' clock as far as it is known without asking; 0: it is not.
func (l *link) known() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.millis == 0 {
		return 0
	}
	return l.millis + time.Since(l.at).Milliseconds()
}

// group is the nodes of one request, a semaphore's permits, or one contender.
type group struct {
	nodes line // the first says what there is to say
	path  string
}

// groups puts a line's nodes together by request. What is kept for a request that still holds
// is left out.
func (l line) groups(dir string) []group {
	var all []group
	index := map[string]int{}
	for _, n := range l {
		if n.kept() {
			if _, held := l.of(n.request()); held {
				continue
			}
		}
		if i, ok := index[n.uuid]; ok && n.uuid != "" && n.role == lease {
			all[i].nodes = append(all[i].nodes, n)
			continue
		}
		index[n.uuid] = len(all)
		all = append(all, group{line{n}, dir + "/" + n.name})
	}
	return all
}

// inspect returns the record of a name as the leader knows it.
func (l *link) inspect(ctx context.Context, name string) (driver.Record, error) {
	dir := l.b.folder(name)
	r := driver.Record{Name: name}
	all, err := l.list(ctx, dir, dir+"/"+locksDir, dir+"/"+leasesDir)
	if err != nil {
		return r, err
	}
	return l.describe(ctx, name, dir, all)
}

// describe makes a record of the listings of a lock's folder, of its locks and of its leases.
func (l *link) describe(ctx context.Context, name, dir string, all []zk.Listing) (driver.Record, error) {
	r := driver.Record{Name: name}
	top, line, leases := read(all[0].Names), read(all[1].Names).line, permitsOf(read(all[2].Names).line)
	var holds, waits []group
	if top.latch {
		if latch, err := l.latch(ctx, dir); err != nil || latch.live {
			if err != nil {
				return driver.Record{}, err
			}
			r.Kind, r.Count = driver.Latch, latch.left()
			return r, nil
		}
	}
	switch {
	case len(top.line) > 0:
		r.Kind = driver.Lock
		n := top.holding()
		holds, waits = top.line[:n].groups(dir), top.line[n:].groups(dir)
	case len(line) > 0 || len(leases) > 0:
		r.Kind = driver.Semaphore
		holds, waits = leases.groups(dir+"/"+leasesDir), line.groups(dir+"/"+locksDir)
	default:
		return r, nil
	}
	r.Waiting = len(waits)
	waits = waits[:min(len(waits), driver.MaxWaiters)]
	paths := make([]string, 0, len(holds)+len(waits))
	for _, g := range append(holds[:len(holds):len(holds)], waits...) {
		paths = append(paths, g.path)
	}
	if _, err := l.clock(ctx, dir); err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return r, err // without permission to make a node, ages are not shown
	}
	nodes, _ := l.GetAll(ctx, nil, paths...)
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			continue // it has gone meanwhile
		}
		if n.Err != nil {
			return r, n.Err
		}
		if i >= len(holds) {
			w := l.holder(waits[i-len(holds)].nodes[0], n, 0)
			w.Token = 0
			r.Waiters = append(r.Waiters, *w)
			continue
		}
		h := l.holder(holds[i].nodes[0], n, 0)
		if r.Kind == driver.Semaphore {
			h.N = max(h.N, len(holds[i].nodes))
		}
		if h.Kept && h.Left <= 0 {
			continue // its time is over: it is deleted below
		}
		r.Token = max(r.Token, h.Token)
		r.Holders = append(r.Holders, *h)
	}
	// Who looks sweeps: Curator's waiters would stand behind a mark of the past for ever. By a
	// later clock than what was said: what is not shown is not left behind either.
	if err := l.sweepPast(ctx, dir, top.line, leases); err != nil {
		return r, err
	}
	if r.Kind == driver.Semaphore {
		limit, _, err := l.limit(ctx, dir+"/"+leasesDir)
		if err != nil {
			return r, err
		}
		r.Limit = limit
	}
	if len(r.Holders) == 0 && r.Waiting == 0 {
		if r.Kind == driver.Lock && len(line)+len(leases) > 0 { // the lock's contender was refused, and has left
			all[0].Names = slices.DeleteFunc(all[0].Names, contends)
			return l.describe(ctx, name, dir, all)
		}
		r.Kind, r.Limit = driver.Unused, 0
	}
	return r, nil
}

// sweepPast deletes the marks of a folder, and of its permits, whose time is over, if that is permitted.
func (l *link) sweepPast(ctx context.Context, dir string, top, leases line) error {
	_, _, err := l.sweep(ctx, dir, top.marks())
	if err == nil {
		_, _, err = l.sweep(ctx, dir+"/"+leasesDir, leases.marks())
	}
	return ignore(ignore(err, zk.ErrNoAuth), zk.ErrNoNode)
}

// otherThan says what else than kind a name is in use as; "": as nothing else.
func (l *link) otherThan(ctx context.Context, dir string, kind driver.Kind) (string, error) {
	all := l.ListAll(ctx, dir, dir+"/"+locksDir, dir+"/"+leasesDir)
	if err := failed(all); err != nil {
		return "", err
	}
	switch kind {
	case driver.Lock:
		all[0].Names = slices.DeleteFunc(all[0].Names, contends)
	case driver.Semaphore:
		all[1].Names, all[2].Names = nil, nil
	case driver.Latch:
		all[0].Names = slices.DeleteFunc(all[0].Names, func(n string) bool { return n == latchNode })
	}
	r, err := l.describe(ctx, "", dir, all)
	return kindName[r.Kind], err
}

var kindName = map[driver.Kind]string{driver.Lock: "lock", driver.Semaphore: "semaphore", driver.Latch: "latch"}
