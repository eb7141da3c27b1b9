package zklock

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// single is a session with protocol Single: one node for each name, and its creator has the lock.
// Next to it is a guard: a node that belongs to the grant alone, and is created and deleted in the
// same steps. So a release, also a repeated one, can delete only its own grant's lock, although all
// clients use the same path for the node.
type single struct {
	*sessionBase
	claims map[string]*claim // by request ID
}

// claim is a request and the servers' state of it. Its mutex guards it.
type claim struct {
	s          *single
	req        driver.Request
	path       string
	token      uint64 // 0: not granted
	unsure     bool   // an answer was lost
	dead       bool
	watch      *zk.Watch
	generation int

	requestBase
}

func newSingle(b *Backend, l *link) *single {
	s := &single{sessionBase: newSessionBase(b, l), claims: map[string]*claim{}}
	s.work.Go(func() { s.runPeriodically(s.cleanUp) })
	return s
}

// errOnlyMutexes returns the refusal of a feature that this protocol does not have.
func errOnlyMutexes(what string) error {
	return invalid("%s: with protocol single there are mutexes only, and no minimum holds", what)
}

// guard returns the path of a grant's own node. No name has this path: it is not a valid escape.
func (c *claim) guard() string { return c.path + "%guard-" + uuidOf(c.req.ID) }

func (s *single) register(ctx context.Context, req *driver.Request) (*claim, error) {
	for {
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return nil, driver.ErrClosed
		}
		c := s.claims[req.ID]
		if c == nil {
			c = &claim{s: s, req: *req, path: s.b.flat(req.Name), requestBase: s.newRequestBase()}
			s.claims[req.ID] = c
		}
		s.mu.Unlock()
		if err := c.lock(ctx); err != nil {
			return nil, err
		}
		if c.late() && !c.dead { // an expired request is not revived
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
	c.stopWakeups()
	if c.s.claims[c.req.ID] == c {
		delete(c.s.claims, c.req.ID)
	}
}

func (c *claim) unwatch() {
	c.generation++
	if c.watch != nil {
		c.watch.Remove()
		c.watch = nil
	}
}

// Acquire creates the node, or watches the existing one.
func (s *single) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if req.Mode != driver.Exclusive || req.MinHold > 0 {
		return driver.Reply{}, errOnlyMutexes("request")
	}
	if err := req.CheckTokens(driver.Kinds{}); err != nil {
		return driver.Reply{}, err
	}
	begin := time.Now()
	c, err := s.register(ctx, req)
	if err != nil {
		return driver.Reply{}, err
	}
	defer c.unlock()
	reply, err := c.acquire(ctx, req.Wait)
	if err != nil {
		if c.token == 0 && !c.unsure {
			c.forget()
		}
		return driver.Reply{}, explain(err)
	}
	if reply.Token == 0 && !req.Wait {
		c.forget()
	} else if reply.Token == 0 {
		reply.Wake, reply.Retry = c.newWake(), s.ttl
	}
	reply.Stale = s.stale(begin)
	return reply, nil
}

func (c *claim) acquire(ctx context.Context, wait bool) (driver.Reply, error) {
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
		reply, absent, err := c.readHolder(ctx, wait)
		if err != nil || !absent {
			return reply, err
		}
	}
	return driver.Reply{}, errContention
}

// take creates the node and its guard.
func (c *claim) take(ctx context.Context) error {
	l := c.s.l
	r := record{id: c.req.ID, ttl: l.Timeout(), info: c.req.Info}
	ops := []zk.Op{zk.CreateOp(c.path, r.bytes(), zk.Ephemeral, l.b.acl),
		zk.CreateOp(c.guard(), nil, zk.Ephemeral, l.b.acl)}
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

// readHolder reads the node that is in the way, and watches it if the request waits.
func (c *claim) readHolder(ctx context.Context, wait bool) (reply driver.Reply, absent bool, err error) {
	c.unwatch()
	generation := c.generation
	var onEvent func(zk.Event)
	if wait {
		onEvent = func(ev zk.Event) {
			if ev.Type != zk.EventSessionLost {
				c.s.spawn(func() { c.followUp(generation) })
			}
		}
	}
	data, stat, w, err := c.s.l.GetW(ctx, c.path, onEvent)
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

// look finds out whether the existing node belongs to this request.
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

// followUp tries to take the lock after its node was deleted. A short random pause spreads the
// waiters that the same deletion woke. They read before they create, since all servers write even a
// create that fails.
func (c *claim) followUp(generation int) {
	for pause := (backoff.Pause{First: time.Millisecond, Most: time.Second}); ; {
		select {
		case <-time.After(rand.N(pause.Next())):
		case <-c.s.workCtx.Done():
			return
		case <-c.s.l.Lost():
			return
		}
		ctx, cancel := c.s.exchangeCtx()
		done := c.retry(ctx, &generation)
		cancel()
		if done {
			return
		}
	}
}

func (c *claim) retry(ctx context.Context, generation *int) bool {
	if c.lock(ctx) != nil {
		return false
	}
	defer c.unlock()
	if c.dead || c.generation != *generation || c.token != 0 || c.unsure {
		return true
	}
	defer func() { *generation = c.generation }()
	for range manyTries {
		_, absent, err := c.readHolder(ctx, true)
		if err != nil || !absent {
			return err == nil
		}
		switch err := c.take(ctx); {
		case err == nil:
			c.push(c.token)
			return true
		case c.unsure: // the waiter finds out when it asks again
			c.push(0)
			return true
		case !errors.Is(err, zk.ErrNodeExists):
			return false
		}
	}
	return false
}

// end deletes the node, if it belongs to the request, and forgets the request. ErrGone: it did not.
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

// cleanUp ends requests that nobody has renewed.
func (s *single) cleanUp(time.Time) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.claims))
	s.mu.Unlock()
	for _, c := range all {
		if !c.late() {
			continue
		}
		ctx, cancel := s.exchangeCtx()
		if c.lock(ctx) == nil {
			if c.late() && !c.dead {
				_ = c.end(ctx) // if it fails, the next call repeats it
			}
			c.unlock()
		}
		cancel()
	}
}
