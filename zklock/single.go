package zklock

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// single is a session of the protocol with one node for each name: who creates it has the lock.
// Beside it stands a guard, a node of the grant's own, which is created and deleted in the
// same steps. So a release, or one that is repeated because its answer was lost, can only
// delete the lock of its own grant, although the node's path is everybody's.
type single struct {
	*presence
	grants map[string]*claim // by request ID
}

// claim is a request and what the servers have of it, guarded by its gate.
type claim struct {
	s      *single
	req    driver.Request
	path   string
	token  uint64 // 0: not granted
	unsure bool   // an answer was lost
	dead   bool
	watch  *zk.Watch
	turn   int

	pending
}

func newSingle(b *Backend, l *link) *single {
	s := &single{presence: newPresence(b, l), grants: map[string]*claim{}}
	s.work.Go(func() { s.watchOver(s.tend) })
	return s
}

// errOnlyMutexes is the refusal of what this protocol does not have.
func errOnlyMutexes(what string) error {
	return invalid("%s: with protocol single there are mutexes only, and no minimum holds", what)
}

// guard is the path of a grant's own node. No name leads to it: it is not a proper escape.
func (c *claim) guard() string { return c.path + "%guard-" + uuidOf(c.req.ID) }

func (s *single) enter(ctx context.Context, req *driver.Request) (*claim, error) {
	for {
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return nil, driver.ErrClosed
		}
		c := s.grants[req.ID]
		if c == nil {
			c = &claim{s: s, req: *req, path: s.b.flat(req.Name), pending: s.pending()}
			s.grants[req.ID] = c
		}
		s.mu.Unlock()
		if err := c.lock(ctx); err != nil {
			return nil, err
		}
		if c.late() && !c.dead { // what has run out is not revived
			if err := c.end(ctx); err != nil && !errors.Is(err, driver.ErrGone) {
				c.unlock()
				return nil, explain(err)
			}
		}
		if !c.dead {
			c.extend(time.Now())
			return c, nil
		}
		c.unlock()
	}
}

func (c *claim) forget() {
	c.unwatch()
	c.dead, c.token, c.unsure = true, 0, false
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.hush()
	if c.s.grants[c.req.ID] == c {
		delete(c.s.grants, c.req.ID)
	}
}

func (c *claim) unwatch() {
	c.turn++
	if c.watch != nil {
		c.watch.Remove()
		c.watch = nil
	}
}

// Acquire creates the node, or watches the one that is there.
func (s *single) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if req.Mode != driver.Exclusive || req.MinHold > 0 {
		return driver.Reply{}, errOnlyMutexes("request")
	}
	begin := time.Now()
	c, err := s.enter(ctx, req)
	if err != nil {
		return driver.Reply{}, err
	}
	defer c.unlock()
	reply, err := c.ask(ctx, req.Wait)
	if err != nil {
		if c.token == 0 && !c.unsure {
			c.forget()
		}
		return driver.Reply{}, explain(err)
	}
	if reply.Token == 0 && !req.Wait {
		c.forget()
	} else if reply.Token == 0 {
		reply.Wake, reply.Retry = c.listen(), s.ttl
	}
	reply.Stale = s.stale(begin)
	return reply, nil
}

func (c *claim) ask(ctx context.Context, wait bool) (driver.Reply, error) {
	if c.token != 0 || c.unsure {
		if err := c.look(ctx); err != nil {
			return driver.Reply{}, err
		}
	}
	for range manyTries {
		if c.token != 0 {
			return driver.Reply{Token: c.token}, nil
		}
		err := c.take(ctx)
		if err == nil {
			continue
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			return driver.Reply{}, err
		}
		reply, absent, err := c.behind(ctx, wait)
		if err != nil || !absent {
			return reply, err
		}
	}
	return driver.Reply{}, errTurmoil
}

// take creates the node and its guard.
func (c *claim) take(ctx context.Context) error {
	l := c.s.l
	r := record{id: c.req.ID, ttl: l.Timeout(), info: c.req.Info}
	ops := []zk.Op{zk.CreateOp(c.path, r.bytes(), zk.Ephemeral, l.b.acl), zk.CreateOp(c.guard(), nil, zk.Ephemeral, l.b.acl)}
	made, err := l.Multi(ctx, ops...)
	if errors.Is(err, zk.ErrNoNode) {
		made, err = l.multiIn(ctx, parent(c.path), ops...)
	}
	switch {
	case err == nil:
		c.unwatch()
		c.token = uint64(made[0].Stat.Czxid)
	case errors.Is(err, zk.ErrConnectionLoss):
		c.unsure = true
	}
	return err
}

// behind reads the node that is in the way, and watches it if the request waits.
func (c *claim) behind(ctx context.Context, wait bool) (reply driver.Reply, absent bool, err error) {
	c.unwatch()
	turn := c.turn
	var wakened func(zk.Event)
	if wait {
		wakened = func(ev zk.Event) {
			if ev.Type != zk.EventSessionLost {
				c.s.spawn(func() { c.wakened(turn) })
			}
		}
	}
	data, stat, w, err := c.s.l.GetW(ctx, c.path, wakened)
	if errors.Is(err, zk.ErrNoNode) {
		return reply, true, nil
	}
	if err != nil {
		return reply, false, err
	}
	c.watch = w
	reply.Holder = c.s.l.holder(node{name: base(c.path)}, zk.Node{Data: data, Stat: stat}, 0)
	return reply, false, nil
}

// look finds out whether the node that is there is this request's.
func (c *claim) look(ctx context.Context) error {
	l := c.s.l
	if err := l.Sync(ctx, "/"); err != nil {
		return err
	}
	data, stat, err := l.Get(ctx, c.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	r := parseRecord(data)
	c.unsure, c.token = false, 0
	if err == nil && r.id == c.req.ID && stat.EphemeralOwner == l.ID() {
		if c.token = uint64(stat.Czxid); r.token != 0 {
			c.token = r.token
		}
	}
	return nil
}

// wakened races for a node that was deleted. A little chance before spreads those who were
// woken by the same; they look before they create, since also a create that fails is written by
// all servers.
func (c *claim) wakened(turn int) {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		select {
		case <-time.After(rand.N(pause)):
		case <-c.s.life.Done():
			return
		case <-c.s.l.Lost():
			return
		}
		ctx, cancel := c.s.soon()
		done := c.race(ctx, &turn)
		cancel()
		if done {
			return
		}
	}
}

func (c *claim) race(ctx context.Context, turn *int) bool {
	if c.lock(ctx) != nil {
		return false
	}
	defer c.unlock()
	if c.dead || c.turn != *turn || c.token != 0 || c.unsure {
		return true
	}
	defer func() { *turn = c.turn }()
	for range manyTries {
		_, absent, err := c.behind(ctx, true)
		if err != nil || !absent {
			return err == nil
		}
		switch err := c.take(ctx); {
		case err == nil:
			c.push(c.token)
			return true
		case c.unsure: // who waits finds out by asking
			c.push(0)
			return true
		case !errors.Is(err, zk.ErrNodeExists):
			return false
		}
	}
	return false
}

// end deletes the node, if it is the request's, and forgets the request. ErrGone: it was not.
func (c *claim) end(ctx context.Context) error {
	if c.unsure {
		if err := c.look(ctx); err != nil {
			return err
		}
	}
	if c.token == 0 {
		c.forget()
		return driver.ErrGone
	}
	_, err := c.s.l.Multi(ctx, zk.DeleteOp(c.guard(), zk.AnyVersion), zk.DeleteOp(c.path, zk.AnyVersion))
	switch {
	case err == nil:
		c.forget()
		return nil
	case errors.Is(err, zk.ErrNoNode):
		c.forget()
		return driver.ErrGone
	case errors.Is(err, zk.ErrConnectionLoss):
		c.unsure = true
	}
	return err
}

// tend ends what nobody has renewed.
func (s *single) tend(time.Time) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.grants))
	s.mu.Unlock()
	for _, c := range all {
		if !c.late() {
			continue
		}
		ctx, cancel := s.soon()
		if c.lock(ctx) == nil {
			if c.late() && !c.dead {
				_ = c.end(ctx) // else the next time
			}
			c.unlock()
		}
		cancel()
	}
}
