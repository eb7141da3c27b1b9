package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// explainOps is explain for the operators' session: its end does not mean that the backend is
// closed.
func explainOps(err error) error {
	switch {
	case !errors.Is(err, zk.ErrSessionExpired):
		return explain(err)
	case errors.Is(err, zk.ErrNotSent):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
}

// Inspect reads the name's folder, and the nodes of its holders and first waiters.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := b.check(name); err != nil {
		return driver.Record{}, err
	}
	l, err := b.operator(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	inspect := l.inspect
	if b.mode == Single {
		inspect = l.inspectSingle
	}
	r, err := inspect(ctx, name)
	return r, explainOps(err)
}

// Break deletes the grant's nodes. Nodes that are created later have larger tokens anyway.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	if err := b.check(name); err != nil {
		return err
	}
	l, err := b.operator(ctx)
	if err != nil {
		return err
	}
	if b.mode == Single {
		return explainOps(l.breakSingle(ctx, name, token))
	}
	return explainOps(l.breakGrant(ctx, b.folder(name), token))
}

// breakGrant lists the folders again if a node has gone: the grant may have moved to another one.
func (l *link) breakGrant(ctx context.Context, dir string, token uint64) error {
	for range manyTries {
		if err := l.breakListed(ctx, dir, token); !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return errContention
}

// breakListed ends the grant as it is listed now. ErrNoNode: a node has gone in the meantime.
func (l *link) breakListed(ctx context.Context, dir string, token uint64) error {
	leasesPath := dir + "/" + leasesDir
	all, err := l.list(ctx, dir, leasesPath)
	if err != nil {
		return err
	}
	top, leases := parseDir(all[0].Names), permitsOf(parseDir(all[1].Names).queue)
	holding := top.queue[:top.holding()]
	var paths []string
	for _, n := range holding {
		paths = append(paths, dir+"/"+n.name)
	}
	for _, n := range leases {
		paths = append(paths, leasesPath+"/"+n.name)
	}
	if len(paths) == 0 {
		if top.latch { // it has no grants, but its record may be damaged
			_, err = l.latch(ctx, dir)
		}
		return cmp.Or(err, driver.ErrGone)
	}
	nodes, _ := l.GetAll(ctx, nil, paths...)
	var ops []zk.Op
	gone := driver.ErrGone
	for i, n := range nodes {
		if errors.Is(n.Err, zk.ErrNoNode) {
			gone = n.Err
			continue
		}
		if n.Err != nil {
			return n.Err
		}
		r := parseRecord(n.Data)
		if r.token == token || r.token == 0 && uint64(n.Stat.Czxid) == token {
			ops = append(ops, zk.DeleteOp(paths[i], zk.AnyVersion))
		}
	}
	if len(ops) == 0 {
		return gone
	}
	_, err = l.Multi(ctx, ops...)
	return err
}

// RemoveLatch implements driver.Backend.
func (b *Backend) RemoveLatch(ctx context.Context, name string) error {
	if err := b.check(name); err != nil {
		return err
	}
	if b.mode == Single {
		return errOnlyMutexes("latch")
	}
	l, err := b.operator(ctx)
	if err != nil {
		return err
	}
	return explainOps(l.removeLatch(ctx, b.folder(name)))
}

// List walks the tree below the root, in byte order of the names.
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	l, err := b.operator(ctx)
	if err != nil {
		return nil, err
	}
	if b.mode == Single {
		list, err := l.listSingle(ctx, prefix, after, limit)
		return list, explainOps(err)
	}
	if err := l.Sync(ctx, "/"); err != nil {
		return nil, explainOps(err)
	}
	w := &walk{l: l, prefix: prefix, after: after, limit: limit}
	root := l.ListAll(ctx, rootPath(b.root))
	if err := failed(root); err != nil {
		return nil, explainOps(err)
	}
	if err := w.below(ctx, b.root, "", root[0].Names, true); err != nil && !errors.Is(err, errEnough) {
		return nil, explainOps(err)
	}
	return w.out, nil
}

func rootPath(root string) string {
	if root == "" {
		return "/"
	}
	return root
}

// walk is the state of a List.
type walk struct {
	l             *link
	prefix, after string
	limit         int
	out           []driver.Record
}

var errEnough = errors.New("enough")

// spot is a level below a folder: the name itself, or all names below it, which begin with text.
// Spots in the order of text give names in byte order.
type spot struct {
	text  string
	below bool
	path  string
}

// below lists the names below a folder with these children. name is the folder's name, with a slash
// unless it is the root.
func (w *walk) below(ctx context.Context, path, name string, children []string, first bool) error {
	var spots []spot
	for _, c := range children {
		level, ok := decodeLevel(c, first, w.l.b.root == "")
		if !ok {
			continue
		}
		for _, s := range []spot{{name + level, false, path + "/" + c}, {name + level + "/", true, path + "/" + c}} {
			if w.wants(s) {
				spots = append(spots, s)
			}
		}
	}
	slices.SortFunc(spots, func(a, b spot) int { return strings.Compare(a.text, b.text) })
	const atOnce = 256
	for chunk := range slices.Chunk(spots, atOnce) {
		dirs := make([]string, 0, 3*len(chunk))
		for _, s := range chunk {
			dirs = append(dirs, s.path, s.path+"/"+locksDir, s.path+"/"+leasesDir)
		}
		all := w.l.ListAll(ctx, dirs...)
		if err := failed(all); err != nil {
			return err
		}
		for i, s := range chunk {
			if err := w.visit(ctx, s, all[3*i:3*i+3]); err != nil {
				return err
			}
		}
	}
	return nil
}

// wants reports whether s is asked for, or may have a name below it that is.
func (w *walk) wants(s spot) bool {
	if !s.below {
		return strings.HasPrefix(s.text, w.prefix) && s.text > w.after
	}
	return (strings.HasPrefix(s.text, w.prefix) || strings.HasPrefix(w.prefix, s.text)) &&
		(s.text > w.after || strings.HasPrefix(w.after, s.text))
}

func (w *walk) visit(ctx context.Context, s spot, all []zk.Listing) error {
	if s.below {
		return w.below(ctx, s.path, s.text, all[0].Names, false)
	}
	r, err := w.l.describe(ctx, s.text, s.path, all)
	if errors.Is(err, errVanished) {
		r, err = w.l.inspect(ctx, s.text)
	}
	if errors.Is(err, driver.ErrDamaged) {
		r, err = driver.Record{Name: s.text, Damaged: strings.TrimPrefix(err.Error(), driver.ErrDamaged.Error()+": ")}, nil
	}
	if err != nil {
		return err
	}
	if r.Kind != driver.Unused || r.Damaged != "" {
		w.out = append(w.out, r)
	}
	if len(w.out) >= w.limit {
		return errEnough
	}
	return nil
}
