package zklock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// holder describes a contender. It returns nil if the node could not be read. left is how long a
// mark lasts, or 0 if that is not known.
func (l *link) holder(n node, data zk.Node, left time.Duration) *driver.Holder {
	if data.Err != nil {
		return nil
	}
	r := parseRecord(data.Data)
	h := &driver.Holder{
		ID: r.id, Mode: n.role.mode(), N: max(1, r.n), Token: uint64(data.Stat.Czxid), Info: r.info, Kept: n.kept(),
		Left: r.ttl,
	}
	if r.id == "" {
		h.ID = n.name
	}
	if r.n > 0 { // in a semaphore's queue
		h.Mode = driver.Permits
	}
	if r.token != 0 {
		h.Token = r.token
	}
	clock := l.knownClock()
	if clock > data.Stat.Ctime && data.Stat.Ctime > 0 {
		h.Age = time.Duration(clock-data.Stat.Ctime) * time.Millisecond
	}
	if h.Kept {
		h.Left = left
		if clock == 0 { // no permission to create a node, so the machine's clock must do
			clock = time.Now().UnixMilli()
		}
		if left == 0 {
			h.Left = max(0, keptFor(&r, &data.Stat, clock))
		}
	}
	return h
}

// knownClock returns the servers' clock without an exchange; 0: not known.
func (l *link) knownClock() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.millis == 0 {
		return 0
	}
	return l.millis + time.Since(l.at).Milliseconds()
}

// group is one contender, or the nodes of one request: a semaphore's permits.
type group struct {
	nodes queue // the first has the record
	path  string
}

// groups groups the nodes by request. It leaves out the marks of requests that still hold.
func (l queue) groups(dir string) []group {
	var all []group
	index := map[string]int{}
	for _, n := range l {
		if n.kept() {
			if _, held := l.find(n.request()); held {
				continue
			}
		}
		if i, ok := index[n.uuid]; ok && n.uuid != "" && n.role == lease {
			all[i].nodes = append(all[i].nodes, n)
			continue
		}
		index[n.uuid] = len(all)
		all = append(all, group{queue{n}, dir + "/" + n.name})
	}
	return all
}

// has reports whether a node of that request is in l.
func (l queue) has(uuid string) bool {
	_, ok := l.find(uuid)
	return ok && uuid != ""
}

// inspect returns the record of a name as the leader knows it.
func (l *link) inspect(ctx context.Context, name string) (driver.Record, error) {
	dir := l.b.folder(name)
	for tries := 1; ; tries++ {
		all, err := l.list(ctx, dir, dir+"/"+locksDir, dir+"/"+leasesDir)
		if err != nil {
			return driver.Record{Name: name}, err
		}
		r, err := l.describe(ctx, name, dir, all)
		switch {
		case !errors.Is(err, errVanished):
			return r, err
		case tries == manyTries && len(r.Holders) > 0: // many holders come and go
			return r, nil
		case tries == manyTries:
			return driver.Record{Name: name}, errContention
		}
	}
}

// errVanished: the node of a holder was gone when it was read. The grant may have ended, or moved to
// another node. The next waiter may have the lock. Only a new listing shows that.
var errVanished = errors.New("a holder's node is gone")

// describe makes a record from the listings of a lock's folder, its locks and its leases. With
// errVanished it returns what it could read.
func (l *link) describe(ctx context.Context, name, dir string, all []zk.Listing) (driver.Record, error) {
	r := driver.Record{Name: name}
	top, waiters, leases := parseDir(all[0].Names), parseDir(all[1].Names).queue, permitsOf(parseDir(all[2].Names).queue)
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
	case len(top.queue) > 0:
		r.Kind = driver.Lock
		n := top.holding()
		holds, waits = top.queue[:n].groups(dir), top.queue[n:].groups(dir)
	case len(waiters) > 0 || len(leases) > 0 || top.limit:
		r.Kind = driver.Semaphore
		// The queue was listed first. A request that has taken permits since is in both lists.
		for len(waiters) > 0 && leases.has(waiters[0].uuid) {
			waiters = waiters[1:]
		}
		holds, waits = leases.groups(dir+"/"+leasesDir), waiters.groups(dir+"/"+locksDir)
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
		return r, err // without permission to create a node, ages are not shown
	}
	nodes, _ := l.GetAll(ctx, nil, paths...)
	vanished := false
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			vanished = vanished || i < len(holds)
			continue
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
			continue // its time is over: sweepPast deletes it
		}
		r.Token = max(r.Token, h.Token)
		r.Holders = append(r.Holders, *h)
	}
	// Inspect deletes expired marks, because Curator's waiters do not: they would wait behind one
	// for ever. The clock is read again after the record was made: no expired mark is left out of
	// the record and left in the folder.
	if err := l.sweepPast(ctx, dir, top.queue, leases); err != nil {
		return r, err
	}
	if r.Kind == driver.Semaphore {
		var limit int
		var err error
		if len(leases) == 0 && len(waits) > 0 { // the servers may have deleted the folder of the permits
			limit, err = l.limitOfWaiters(ctx, dir, waits[0].path)
		} else {
			limit, _, err = l.limit(ctx, dir+"/"+leasesDir)
		}
		if err != nil {
			return r, err
		}
		r.Limit = limit
		if top.limit {
			set, err := l.setLimitOf(ctx, dir)
			if err != nil {
				return driver.Record{}, err
			}
			r.Limit, r.Set = cmp.Or(set, limit), set != 0
		}
	}
	if vanished {
		return r, errVanished
	}
	if len(r.Holders) == 0 && r.Waiting == 0 {
		// There are only marks whose time is over.
		if r.Kind == driver.Lock && (len(waiters)+len(leases) > 0 || top.limit) {
			all[0].Names = slices.DeleteFunc(all[0].Names, contends)
			return l.describe(ctx, name, dir, all)
		}
		if !r.Set {
			r.Kind, r.Limit = driver.Unused, 0
		}
	}
	return r, nil
}

// sweepPast deletes the expired marks of a folder and of its permits, if that is permitted.
func (l *link) sweepPast(ctx context.Context, dir string, top, leases queue) error {
	_, _, err := l.sweep(ctx, dir, top.marks())
	if err == nil {
		_, _, err = l.sweep(ctx, dir+"/"+leasesDir, leases.marks())
	}
	return ignore(ignore(err, zk.ErrNoAuth), zk.ErrNoNode)
}

// otherThan returns the kind other than kind as which a name is in use; "" if there is none.
func (l *link) otherThan(ctx context.Context, dir string, kind driver.Kind) (string, error) {
	for range manyTries {
		all, err := l.listHere(ctx, dir, dir+"/"+locksDir, dir+"/"+leasesDir)
		if err != nil {
			return "", err
		}
		switch kind {
		case driver.Lock:
			all[0].Names = slices.DeleteFunc(all[0].Names, contends)
		case driver.Semaphore:
			all[0].Names = slices.DeleteFunc(all[0].Names, func(n string) bool { return n == limitNode })
			all[1].Names, all[2].Names = nil, nil
		case driver.Latch:
			all[0].Names = slices.DeleteFunc(all[0].Names, func(n string) bool { return n == latchNode })
		}
		r, err := l.describe(ctx, "", dir, all)
		if errors.Is(err, errVanished) && len(r.Holders)+r.Waiting > 0 {
			err = nil // the others show the kind
		}
		if !errors.Is(err, errVanished) {
			return kindName[r.Kind], err
		}
	}
	return "", errContention
}

var kindName = map[driver.Kind]string{driver.Lock: "lock", driver.Semaphore: "semaphore", driver.Latch: "latch"}
