package zk

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// Listing is the result of Children.
type Listing struct {
	Names []string
	Stat  Stat
	Err   error
}

// CreateAndList is Create, then Children of the node's parent and of the paths in also, in one
// round trip. If the node was created and its parent could not be listed, both name and an error
// are returned; the other listings have errors of their own.
func (s *Session) CreateAndList(ctx context.Context, path string, data []byte, mode Mode, acl []ACL, also ...string) (
	string, Stat, []Listing, error) {
	if err := checkPath(path); err != nil {
		return "", Stat{}, nil, &opError{"create", path, notSent(err)}
	}
	dirs := append([]string{path[:max(strings.LastIndexByte(path, '/'), 1)]}, also...)
	op := createOp(mode)
	if s.isOld() {
		op = opCreate
	}
	create := s.createCall(op, path, data, mode, acl)
	lists := s.listCalls(dirs)
	if err := s.begin(ctx, path, append([]*call{create}, lists...)...); err != nil {
		return "", Stat{}, nil, &opError{"create", path, err}
	}
	_, err := s.wait(ctx, create)
	if err != nil && !errors.Is(err, ErrUnimplemented) {
		for _, c := range lists {
			_, _ = s.wait(canceled, c) // nobody waits for the answer
		}
		return "", Stat{}, nil, &opError{"create", path, err}
	}
	all := s.listings(ctx, dirs, lists)
	var name string
	var stat Stat
	switch {
	case err != nil:
		s.becomeOld()
		if name, stat, err = s.createOld(ctx, path, data, mode, acl); err != nil {
			return "", Stat{}, nil, err
		}
		all = s.ListAll(ctx, dirs...)
	case op == opCreate:
		d := decoder{b: create.body}
		name, stat = d.string(), s.bareStat(create.hdr.zxid, data, mode)
		if d.err != nil {
			return "", Stat{}, nil, &opError{"create", path, d.err}
		}
	default:
		if name, stat, err = s.created(&decoder{b: create.body}, path); err != nil {
			return "", Stat{}, nil, err
		}
	}
	return name, stat, all, all[0].Err
}

// ListAll is Children of each path, in one round trip.
func (s *Session) ListAll(ctx context.Context, paths ...string) []Listing {
	lists := s.listCalls(paths)
	if err := s.beginAll(ctx, paths, lists); err != nil {
		all := make([]Listing, len(paths))
		for i := range all {
			all[i].Err = err
		}
		return all
	}
	return s.listings(ctx, paths, lists)
}

// SyncAndList is Sync and then ListAll, in one round trip.
func (s *Session) SyncAndList(ctx context.Context, paths ...string) ([]Listing, error) {
	sync, lists := syncCall(paths[0]), s.listCalls(paths)
	if err := s.beginAll(ctx, paths, append([]*call{sync}, lists...)); err != nil {
		return nil, err
	}
	_, err := s.wait(ctx, sync)
	all := s.listings(ctx, paths, lists)
	if err != nil {
		return nil, &opError{"sync", paths[0], err}
	}
	return all, nil
}

// beginAll submits calls together, for paths.
func (s *Session) beginAll(ctx context.Context, paths []string, calls []*call) error {
	for _, p := range paths {
		if err := checkPath(p); err != nil {
			return notSent(err)
		}
	}
	if err := s.begin(ctx, "/", calls...); err != nil {
		return &opError{"list", paths[0], err}
	}
	return nil
}

func (s *Session) listCalls(paths []string) []*call {
	calls := make([]*call, len(paths))
	for i, p := range paths {
		calls[i] = s.childrenCall(p, nil)
	}
	return calls
}

// listings waits for calls that list, and returns their results.
func (s *Session) listings(ctx context.Context, paths []string, calls []*call) []Listing {
	all := make([]Listing, len(calls))
	for i, c := range calls {
		l := &all[i]
		if _, err := s.wait(ctx, c); err != nil {
			l.Err = &opError{"list", paths[i], err}
			continue
		}
		d := decoder{b: c.body}
		l.Names, l.Stat = d.strings(), d.stat()
		if d.err != nil {
			l.Err = &opError{"list", paths[i], d.err}
		}
	}
	return all
}

var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Node is the result of Get.
type Node struct {
	Data []byte
	Stat Stat
	Err  error
}

// GetAll is Get of each path, in one round trip. If f is not nil, the first is a GetW.
func (s *Session) GetAll(ctx context.Context, f func(Event), paths ...string) ([]Node, *Watch) {
	nodes, w, _ := s.GetAndList(ctx, Handler{Func: f}, paths)
	return nodes, w
}

// StatAll is Exists of each path, in one round trip. The nodes have no data.
func (s *Session) StatAll(ctx context.Context, paths ...string) []Node {
	calls := make([]*call, len(paths))
	for i, p := range paths {
		calls[i] = s.readCall(opExists, p, watchExist, nil)
	}
	if err := s.beginAll(ctx, paths, calls); err != nil {
		all := make([]Node, len(paths))
		for i := range all {
			all[i].Err = err
		}
		return all
	}
	return s.nodes(ctx, paths, calls, false)
}

// nodes waits for calls that read nodes, and returns their results.
func (s *Session) nodes(ctx context.Context, paths []string, calls []*call, data bool) []Node {
	all := make([]Node, len(calls))
	for i, c := range calls {
		n := &all[i]
		if _, err := s.wait(ctx, c); err != nil {
			n.Err = &opError{"get", paths[i], err}
			continue
		}
		d := decoder{b: c.body}
		if data {
			n.Data = slices.Clone(d.buffer())
		}
		n.Stat, n.Err = statOf(&d, "get", paths[i], nil)
	}
	return all
}

// GetAndList is GetAll, and then Children of dirs, in one round trip.
func (s *Session) GetAndList(ctx context.Context, h Handler, paths []string, dirs ...string) (
	[]Node, *Watch, []Listing) {
	calls := make([]*call, len(paths), len(paths)+len(dirs))
	f := h.Func
	for i, p := range paths {
		calls[i] = s.readCall(opGetData, p, watchData, f)
		if f != nil {
			calls[i].watch.soon = h.Soon
		}
		f = nil
	}
	lists := s.listCalls(dirs)
	nodes := make([]Node, len(paths))
	var all []Listing
	if begun := s.beginAll(ctx, slices.Concat(paths, dirs), append(calls, lists...)); begun != nil {
		for i := range nodes {
			nodes[i].Err = begun
		}
	} else {
		nodes, all = s.nodes(ctx, paths, calls, true), s.listings(ctx, dirs, lists)
	}
	if len(nodes) == 0 || nodes[0].Err != nil {
		return nodes, nil, all
	}
	return nodes, calls[0].watch, all
}

// WatchAll is ExistsW of each path, in one round trip. f also gets the index of the path. A missing
// node (ErrNoNode) is not watched.
func (s *Session) WatchAll(ctx context.Context, f func(int, Event), paths ...string) []error {
	calls := make([]*call, len(paths))
	for i, p := range paths {
		calls[i] = s.readCall(opExists, p, watchExist, func(e Event) { f(i, e) })
	}
	errs := make([]error, len(paths))
	begun := s.beginAll(ctx, paths, calls)
	for i, c := range calls {
		if errs[i] = begun; begun != nil {
			continue
		}
		if _, err := s.wait(ctx, c); err != nil {
			errs[i] = &opError{"watch", paths[i], err}
			c.watch.Remove()
		}
	}
	return errs
}
