package zklock

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// flat returns the path of a name's node with protocol Single. All nodes are directly below the
// root, since an ephemeral node has no children.
func (b *Backend) flat(name string) string {
	alone := name == "." || name == ".." || b.root == "" && name == "zookeeper"
	levels := strings.Split(name, "/")
	for i, level := range levels {
		levels[i] = escape(level, alone)
	}
	return b.root + "/" + strings.Join(levels, "%2F")
}

// unflat reverses flat for a child of the root.
func (b *Backend) unflat(child string) (string, bool) {
	levels := strings.Split(child, "%2F")
	for i, node := range levels {
		level, err := url.PathUnescape(node)
		if err != nil {
			return "", false
		}
		levels[i] = level
	}
	name := strings.Join(levels, "/")
	return name, utf8.ValidString(name) && b.flat(name) == b.root+"/"+child
}

// findGrant returns the claim that has a grant, with its mutex locked, or nil.
func (s *single) findGrant(ctx context.Context, h driver.Hold) (*claim, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	c := s.claims[h.ID]
	s.mu.Unlock()
	if c == nil || c.req.Name != h.Name {
		return nil, nil
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	var err error
	if c.unsure {
		err = c.look(ctx)
	}
	if err == nil && !c.dead && c.late() {
		if err = c.end(ctx); errors.Is(err, driver.ErrGone) {
			err = nil
		}
	}
	if err != nil || c.dead || c.token != h.Token {
		c.unlock()
		return nil, err
	}
	return c, nil
}

// Release deletes the grant's node and guard.
func (s *single) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if keep != 0 {
		return errOnlyMutexes("time to keep the name")
	}
	c, err := s.findGrant(ctx, h)
	if c != nil {
		err = c.end(ctx)
		c.unlock()
	}
	return s.releaseError(c != nil, err, func() error { return s.ended(ctx, h) })
}

// ended returns the error for a grant that has ended.
func (s *single) ended(ctx context.Context, h driver.Hold) error {
	r, err := s.l.inspectSingle(ctx, h.Name)
	switch {
	case err != nil:
		return explain(err)
	case len(r.Holders) > 0 && r.Holders[0].Token > h.Token:
		return driver.ErrTaken
	}
	return driver.ErrGone
}

// Cancel ends the request, whatever it has.
func (s *single) Cancel(ctx context.Context, name, id string) error {
	s.mu.Lock()
	c, over := s.claims[id], s.over
	s.mu.Unlock()
	switch {
	case over:
		return driver.ErrClosed
	case c == nil:
		return explain(s.l.Sync(ctx, "/")) // an error: the outcome is not known
	}
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	if err := c.end(ctx); !errors.Is(err, driver.ErrGone) {
		return explain(err)
	}
	return nil
}

// Renew proves that the session lives, and reads the nodes of its grants.
func (s *single) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	begin := time.Now()
	if err := s.usable(); err != nil || len(holds) == 0 {
		return nil, err
	}
	var changes []driver.Change
	if err := s.l.Sync(ctx, "/"); err != nil {
		return nil, explain(err)
	}
	for i, h := range holds {
		ch, err := s.changeOf(ctx, h, begin)
		if err != nil {
			return nil, explain(err)
		}
		if ch.Index = i; ch.State != 0 {
			changes = append(changes, ch)
		}
	}
	return changes, s.prove(begin)
}

func (s *single) changeOf(ctx context.Context, h driver.Hold, begin time.Time) (driver.Change, error) {
	gone := driver.Change{State: driver.Gone}
	s.mu.Lock()
	c := s.claims[h.ID]
	s.mu.Unlock()
	if c == nil || c.req.Name != h.Name {
		return gone, nil
	}
	if err := c.lock(ctx); err != nil {
		return gone, err
	}
	defer c.unlock()
	if c.late() && !c.dead {
		if err := c.end(ctx); err != nil && !errors.Is(err, driver.ErrGone) {
			return gone, err
		}
	}
	if c.dead || h.Token != 0 && c.token != h.Token {
		return gone, nil
	}
	if c.token == 0 && !c.unsure {
		c.extend(begin)
		return driver.Change{State: driver.Waiting, Retry: s.ttl}, nil
	}
	was := c.token
	if err := c.look(ctx); err != nil {
		return gone, err
	}
	switch {
	case c.token == 0 && was != 0:
		c.forget()
		return gone, nil
	case c.token == 0:
		return gone, nil // the client asks again
	}
	c.extend(begin)
	if h.Token == 0 {
		return driver.Change{State: driver.Granted, Token: c.token}, nil
	}
	return driver.Change{}, nil
}

// Adopt replaces the node of another session by one of this session, in one step.
func (s *single) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if err := driver.CheckID(id); err != nil {
		return err
	}
	c, err := s.register(ctx, &driver.Request{ID: id, Name: h.Name, Mode: driver.Exclusive, N: 1, Info: info})
	if err != nil {
		return err
	}
	defer c.unlock()
	if err := c.look(ctx); err != nil {
		return explain(err)
	}
	if c.token != 0 {
		if c.token == h.Token {
			return nil // adopted before
		}
		return invalid("id %q: it belongs to another grant of the name", id)
	}
	old, err := s.l.inspectSingle(ctx, h.Name)
	if err != nil || len(old.Holders) == 0 || old.Holders[0].ID != h.ID || old.Holders[0].Token != h.Token {
		c.forget()
		if err != nil {
			return explain(err)
		}
		return s.ended(ctx, h)
	}
	r := record{id: id, ttl: s.l.Timeout(), token: h.Token, info: info}
	before := claim{req: driver.Request{ID: h.ID}, path: c.path}
	_, err = s.l.Multi(ctx, zk.DeleteOp(before.guard(), zk.AnyVersion), zk.DeleteOp(c.path, zk.AnyVersion),
		zk.CreateOp(c.path, r.bytes(), zk.Ephemeral, s.b.acl), zk.CreateOp(c.guard(), nil, zk.Ephemeral, s.b.acl))
	switch {
	case err == nil:
		c.token = h.Token
		return nil
	case errors.Is(err, zk.ErrNoNode):
		c.forget()
		return s.ended(ctx, h)
	case errors.Is(err, zk.ErrConnectionLoss):
		c.unsure = true
	default:
		c.forget()
	}
	return explain(err)
}

// Downgrade is refused: there are no readers.
func (s *single) Downgrade(context.Context, driver.Hold) error { return errOnlyMutexes("downgrade") }

// Reduce is refused: there are no semaphores.
func (s *single) Reduce(context.Context, driver.Hold, int) error { return errOnlyMutexes("semaphore") }

// SetCount is refused: there are no latches.
func (s *single) SetCount(context.Context, string, int64) (bool, error) {
	return false, errOnlyMutexes("latch")
}

// CountDown is refused: there are no latches.
func (s *single) CountDown(context.Context, string, string) (int64, error) {
	return 0, errOnlyMutexes("latch")
}

// Await is refused: there are no latches.
func (s *single) Await(context.Context, string, string) (driver.Reply, error) {
	return driver.Reply{}, errOnlyMutexes("latch")
}

// Close ends the session at the servers, and with it its nodes.
func (s *single) Close(ctx context.Context) error { return s.endSession(ctx, func() {}) }

// inspectSingle is inspect for protocol Single. Waiters are not known.
func (l *link) inspectSingle(ctx context.Context, name string) (driver.Record, error) {
	r := driver.Record{Name: name}
	path := l.b.flat(name)
	if err := l.Sync(ctx, "/"); err != nil {
		return r, err
	}
	data, stat, err := l.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if stat.EphemeralOwner == 0 {
		return r, nil // a folder of something else
	}
	h := l.holder(node{name: base(path)}, zk.Node{Data: data, Stat: stat}, 0)
	r.Kind, r.Token, r.Holders = driver.Lock, h.Token, []driver.Holder{*h}
	return r, nil
}

// breakSingle deletes the node of a grant, and its guard.
func (l *link) breakSingle(ctx context.Context, name string, token uint64) error {
	r, err := l.inspectSingle(ctx, name)
	if err != nil {
		return err
	}
	if len(r.Holders) == 0 || r.Holders[0].Token != token {
		return driver.ErrGone
	}
	c := claim{req: driver.Request{ID: r.Holders[0].ID}, path: l.b.flat(name)}
	ops := []zk.Op{zk.DeleteOp(c.guard(), zk.AnyVersion), zk.DeleteOp(c.path, zk.AnyVersion)}
	if c.req.ID == base(c.path) { // a node of another program, which has no guard
		ops = ops[1:]
	}
	_, err = l.Multi(ctx, ops...)
	if errors.Is(err, zk.ErrNoNode) {
		return driver.ErrGone
	}
	return err
}

// listSingle is List for protocol Single.
func (l *link) listSingle(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	all, err := l.list(ctx, rootPath(l.b.root))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range all[0].Names {
		if name, ok := l.b.unflat(c); ok && strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []driver.Record
	for _, name := range names {
		r, err := l.inspectSingle(ctx, name)
		if err != nil {
			return nil, err
		}
		if r.Kind != driver.Unused {
			out = append(out, r)
		}
		if len(out) == limit {
			break
		}
	}
	return out, nil
}
