package zklock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/zk"
)

// link is a ZooKeeper session with the operations that zklock repeats.
type link struct {
	*zk.Session
	b         *Backend
	sealedACL []zk.ACL // of contenders' nodes, see seal.go
	aclTest   aclTest

	mu     sync.Mutex
	millis int64     // the servers' clock…
	at     time.Time // …at this time or before
}

// create creates an ephemeral node, and the folders above it that are missing. It lists the node's
// folder and the folders in also.
func (l *link) create(ctx context.Context, prefix string, data []byte, also ...string) (
	string, zk.Stat, []zk.Listing, error) {
	name, stat, lists, err := l.CreateAndList(ctx, prefix, data, zk.EphemeralSequential, l.sealedACL, also...)
	if name == "" && errors.Is(err, zk.ErrNoNode) {
		var made []zk.Result
		made, err = l.multiIn(ctx, parent(prefix), zk.CreateOp(prefix, data, zk.EphemeralSequential, l.sealedACL))
		if err == nil {
			name, stat = made[0].Path, made[0].Stat
			lists = l.ListAll(ctx, append([]string{parent(prefix)}, also...)...)
			err = lists[0].Err
		}
	}
	if err == nil {
		l.noteClock(stat.Ctime)
	}
	return name, stat, lists, err
}

// manyTries is how often to repeat a step that fails only if somebody undoes, at that moment, what
// was done before.
const manyTries = 8

// multiIn is Multi for ops that need the folder dir; it creates missing folders. Folders are
// containers, which the servers delete some time after they have become empty. But the servers keep
// a container that never had a child. So missing folders are created in one step with their
// contents: a request that ends before that leaves none.
func (l *link) multiIn(ctx context.Context, dir string, ops ...zk.Op) ([]zk.Result, error) {
	const deep = 64 // folders that fit into one packet
	for tries := 1; ; tries++ {
		missing, err := l.missing(ctx, dir)
		if err != nil {
			return nil, err
		}
		rest, whole := ops, len(missing) <= deep
		if !whole {
			missing = missing[:deep]
			rest = l.used(missing[deep-1])
		}
		var all []zk.Op
		for _, folder := range missing {
			all = append(all, zk.CreateOp(folder, nil, zk.Container, l.b.acl))
		}
		made, err := l.Multi(ctx, append(all, rest...)...)
		if err == nil && whole {
			return made[len(missing):], nil
		}
		if err == nil {
			tries = 0
			continue
		}
		others := slices.ContainsFunc(made[:min(len(missing), len(made))], func(r zk.Result) bool {
			return errors.Is(r.Err, zk.ErrNodeExists) // somebody else created a folder
		})
		if !others && !errors.Is(err, zk.ErrNoNode) || tries == 4*manyTries {
			return nil, err
		}
		// Clients create folders while the server deletes them: a random pause lets one of them finish.
		select {
		case <-time.After(rand.N(time.Duration(tries) * time.Millisecond)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// missing returns which of dir and the folders above it do not exist, from the top.
func (l *link) missing(ctx context.Context, dir string) ([]string, error) {
	var levels, missing []string
	for at := dir; len(at) > 1; at = parent(at) {
		levels = append(levels, at)
	}
	slices.Reverse(levels)
	nodes, _ := l.GetAll(ctx, nil, levels...)
	for i, n := range nodes {
		switch {
		case errors.Is(n.Err, zk.ErrNoNode):
			missing = append(missing, levels[i])
		case n.Err != nil && !errors.Is(n.Err, zk.ErrNoAuth):
			return nil, n.Err
		}
	}
	return missing, nil
}

// used returns operations that create and delete a child of the new folder dir. Without them the
// servers would keep the folder when it is empty.
func (l *link) used(dir string) []zk.Op {
	child := dir + "/used"
	return []zk.Op{zk.CreateOp(child, nil, zk.Ephemeral, l.b.acl), zk.DeleteOp(child, zk.AnyVersion)}
}

func parent(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 1)] }

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// tidy deletes empty folders, from dirs up to the root, if the servers do not do it themselves.
func (l *link) tidy(ctx context.Context, dirs ...string) {
	if l.Containers() {
		return
	}
	for _, dir := range dirs {
		for dir != l.b.root && len(dir) > len(l.b.root) && dir != "/" {
			if l.Delete(ctx, dir, zk.AnyVersion) != nil { // it is in use, or somebody deleted it
				break
			}
			dir = parent(dir)
		}
	}
}

// list returns the children of folders as the leader knows them now. A missing folder counts as
// empty.
func (l *link) list(ctx context.Context, dirs ...string) ([]zk.Listing, error) {
	all, err := l.SyncAndList(ctx, dirs...)
	if err != nil {
		return nil, err
	}
	return all, failed(all)
}

// listHere is list, as the connected server knows the folders.
func (l *link) listHere(ctx context.Context, dirs ...string) ([]zk.Listing, error) {
	all := l.ListAll(ctx, dirs...)
	return all, failed(all)
}

// failed returns the first error of listings. A missing folder counts as empty.
func failed(all []zk.Listing) error {
	for i := range all {
		if errors.Is(all[i].Err, zk.ErrNoNode) {
			all[i].Err = nil
		}
		if all[i].Err != nil {
			return all[i].Err
		}
	}
	return nil
}

// noteClock records the servers' clock: millis was read before now.
func (l *link) noteClock(millis int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.millis, l.at = millis, time.Now()
}

// clock returns the servers' clock in milliseconds, or a little less. If the last reading is old,
// clock creates and deletes a node in dir, in one step.
func (l *link) clock(ctx context.Context, dir string) (int64, error) {
	return l.clockWithin(ctx, dir, 5*time.Second)
}

// clockWithin is clock if a reading is old after young.
func (l *link) clockWithin(ctx context.Context, dir string, young time.Duration) (int64, error) {
	l.mu.Lock()
	millis, age := l.millis, time.Since(l.at)
	l.mu.Unlock()
	if millis == 0 || age > young {
		path := strings.TrimSuffix(dir, "/") + "/" + clockNode
		made, err := l.Multi(ctx, zk.CreateOp(path, nil, zk.Ephemeral, l.b.acl), zk.DeleteOp(path, zk.AnyVersion))
		if err != nil {
			return 0, err
		}
		millis = made[0].Stat.Ctime
		if millis == 0 { // servers before 3.5 do not return the time
			if millis, err = l.createTime(ctx, path+"-"); err != nil {
				return 0, err
			}
		}
		l.noteClock(millis)
		return millis, nil
	}
	return millis + age.Milliseconds(), nil
}

// createTime creates a node and returns when it was created.
func (l *link) createTime(ctx context.Context, prefix string) (int64, error) {
	path, _, err := l.Create(ctx, prefix, nil, zk.EphemeralSequential, l.b.acl)
	if err != nil {
		return 0, err
	}
	stat, err := l.Exists(ctx, path)
	return stat.Ctime, errors.Join(err, l.Delete(ctx, path, zk.AnyVersion))
}

// keptFor returns how much longer a mark keeps its name taken.
func keptFor(r *record, stat *zk.Stat, clock int64) time.Duration {
	return r.keep - time.Duration(clock-stat.Mtime)*time.Millisecond
}

// sweep deletes those marks in dir whose time is over. It returns how long the longest of the
// others lasts, and whether a mark is gone.
func (l *link) sweep(ctx context.Context, dir string, marks queue) (left time.Duration, swept bool, err error) {
	if len(marks) == 0 {
		return 0, false, nil
	}
	paths := make([]string, len(marks))
	for i, m := range marks {
		paths[i] = dir + "/" + m.name
	}
	clock, err := l.clock(ctx, dir)
	if err != nil {
		return 0, false, err
	}
	nodes, _ := l.GetAll(ctx, nil, paths...)
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			swept = true
			continue
		}
		if n.Err != nil {
			return 0, swept, n.Err
		}
		r := parseRecord(n.Data)
		d := keptFor(&r, &n.Stat, clock)
		if r.keep == 0 { // not a mark of holdfast, whatever its name is
			d = time.Second
		}
		if d > 0 {
			left = max(left, d)
			continue
		}
		// Only this version: somebody may have extended the mark since.
		err := l.Delete(ctx, paths[i], n.Stat.Version)
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return 0, swept, err
		}
		swept = true
	}
	return left, swept, nil
}

// deleteAll deletes children, many in one request.
func (l *link) deleteAll(ctx context.Context, dir string, names []string) error {
	const atOnce = 500
	for len(names) > 0 {
		n := min(len(names), atOnce)
		ops := make([]zk.Op, n)
		for i, name := range names[:n] {
			ops[i] = zk.DeleteOp(dir+"/"+name, zk.AnyVersion)
		}
		// Somebody else deletes them.
		if _, err := l.Multi(ctx, ops...); errors.Is(err, zk.ErrNoNode) {
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
