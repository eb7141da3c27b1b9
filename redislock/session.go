package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// session implements driver.Session.
type session struct {
	b             *Backend
	id            string
	ttl           time.Duration
	stop          func()        // ends the subscription
	subscriptions subscriptions // in a Cluster
	announced     announcements // with a Format

	patience time.Duration         // how long replicas are waited for
	flights  sync.WaitGroup        // exchanges that may take a place or a grant
	hooks    Hooks                 // of a quorum
	doubt    func(string)          // driver.SessionConfig.Doubt, with a Format
	wanted   func(name, id string) // driver.SessionConfig.Wanted

	mu        sync.Mutex
	requests  map[string]request // by request ID: grants, places in the queue, and requests under way
	cancelled cancelled
	undoing   map[string]*undoing // by request ID, at a member
	streak    map[string]int8     // of names that were free or contended lately; see fastpath.go
	pruned    time.Duration       // when prune last worked
	closed    bool
	asked     uint64   // the number of the last exchange that asked for a request
	largest   uint64   // the largest token that was proposed or granted, at a member
	forgotten uint64   // the largest limit of a late cancellation that prune has forgotten
	stray     []string // names from the index that may be forgotten
}

// TTL returns the TTL that was asked for, in whole microseconds.
func (s *session) TTL() time.Duration { return s.ttl }

// Lost is never closed: each lease ends by itself.
func (s *session) Lost() <-chan struct{} { return nil }

func (s *session) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	reply, _, err := s.acquire(ctx, req, 0)
	return reply, err
}

// acquire is Acquire with the token that a member of a quorum proposes. place is the place in the
// queue, for a member only.
func (s *session) acquire(ctx context.Context, req *driver.Request, want uint64) (
	reply driver.Reply, place uint64, err error) {
	if err := req.CheckTokens(s.b.Kinds()); err != nil {
		return reply, 0, err
	}
	if len(req.ID) > 48 || len(req.Name) > driver.MaxName || req.Mode < driver.Exclusive || req.Mode > driver.Permits {
		return reply, 0, req.Check()
	}
	if err := cmp.Or(s.b.checkFormat(req.Name, kindOf(req.Mode)), s.b.checkPermits(req)); err != nil {
		return reply, 0, err
	}
	sent := s.b.now()
	number, again, err := s.register(req.ID, request{name: req.Name, group: req.Mode != driver.Exclusive,
		own: req.Lease != 0, mode: req.Mode, rw: req.ReadWrite, calls: req.CallBack,
		queued: s.b.format.queued(req.Mode, req.ReadWrite)}, want)
	if err != nil {
		return reply, 0, err
	}
	defer s.flights.Done()
	lease := driver.LeaseWithin(req.Lease, s.ttl)
	px := int((max(s.ttl, req.MinHold) + retention).Milliseconds())
	if req.Mode == driver.Exclusive && s.canTake(req.Name) {
		holder, err := s.holder(ctx, req)
		if err != nil {
			return reply, 0, s.refused(requester{s, req.Name, req.ID}, again, err)
		}
		c := s.b.proposal(s.b.keys(req.Name, "l"), want).micros(lease).micros(req.MinHold).end()
		c.counted(req.ID).counted(holder).str(req.Info).end().number(px).end().number(req.Block()).end()
		v, err := s.b.take.run(ctx, s.patience, c, requester{s, req.Name, req.ID})
		short, err := lacking(err)
		switch {
		case err != nil:
			return reply, 0, s.refused(requester{s, req.Name, req.ID}, again, err)
		case v.Kind == Int && v.Int > 0 && short != nil:
			return reply, 0, s.takeBack(ctx, req.Name, req.ID, short)
		case v.Kind == Int && v.Int > 0:
			reply, err = s.granted(ctx, req, uint64(v.Int), sent)
			return reply, 0, err
		}
		s.noteContended(req.Name)
	}
	// In a Cluster an unsubscribed session first asks without a place: mostly the name is free.
	wait := req.Wait && (s.b.early || s.subscribed(req.Name) && s.hears(req.Name, req.ID, req.Mode, req.ReadWrite))
	v, short, err := s.runAcquire(ctx, req, wait, px, want)
	if wait != req.Wait && err == nil && v.Kind == List && len(v.List) > 0 && v.List[0].Int == 0 {
		v, short, err = s.runAcquire(ctx, req, true, px, want)
	}
	switch {
	case err != nil:
		return reply, 0, s.refused(requester{s, req.Name, req.ID}, again, err)
	case short != nil && (v.Int > 0 || v.Kind == List && len(v.List) > 0 && v.List[0].Int > 0):
		return reply, 0, s.takeBack(ctx, req.Name, req.ID, short)
	case v.Kind == Text:
		s.unregister(req.ID)
		return reply, 0, fmt.Errorf("%w: %s", driver.ErrKind, v.Text)
	case v.Kind == Int && v.Int == -1:
		s.unregister(req.ID)
		return reply, 0, driver.ErrNoLimit
	case v.Kind == Int && v.Int > 0:
		s.noteFree(req.Name)
		reply, err = s.granted(ctx, req, uint64(v.Int), sent)
		return reply, 0, err
	case v.Kind == List && len(v.List) > 0 && v.List[0].Int > 0:
		s.noteFree(req.Name)
		s.collect(ctx, req.Name, v.List[1:])
		reply, err = s.granted(ctx, req, uint64(v.List[0].Int), sent)
		return reply, 0, err
	case v.Kind != List || len(v.List) < 4:
		return reply, 0, strange(v)
	}
	s.noteContended(req.Name)
	if s.b.member != nil {
		if place, v, err = cutPlace(v); err != nil {
			return reply, 0, err
		}
	}
	reply, last, err := decodeNotYet(v)
	if err != nil {
		return driver.Reply{}, 0, err
	}
	if !req.Wait {
		s.refusedAt(req.ID, number, last)
		return reply, 0, nil
	}
	wake, ok := s.waits(req.ID, last)
	if !ok { // cancelled meanwhile, perhaps before the store received the request
		return reply, 0, s.ensureCancelled(ctx, req.Name, req.ID)
	}
	reply.Wake = wake
	return reply, place, nil
}

// runAcquire runs acquire.lua. short is not nil if replicas lack what it did.
func (s *session) runAcquire(ctx context.Context, req *driver.Request, wait bool, px int, want uint64) (
	v Value, short *unreplicated, err error) {
	session, err := s.listening(ctx, req.Name, wait || req.CallBack)
	if err == nil && wait {
		err = s.hear(ctx, req.Name, req.ID, req.Mode, req.ReadWrite)
	}
	if err != nil {
		return Value{}, nil, err
	}
	c := s.b.keys(req.Name, "lzmti")
	c.buf = append(c.buf, modes[req.Mode], '0')
	if wait {
		c.buf[len(c.buf)-1]++
	}
	if req.CallBack {
		c.buf[len(c.buf)-1] += 2
	}
	c.micros(driver.LeaseWithin(req.Lease, s.ttl)).micros(req.MinHold).padded(uint64(s.b.numberOf(req)), 10).
		padded(uint64(req.Limit), 10)
	c.micros(s.ttl)
	s.b.proposal(c, want).end()
	c.counted(req.ID).counted(session).str(req.Info).end().number(px).end()
	v, err = s.b.sure(ctx, s.patience, s.b.scripts.acquire, c, requester{s, req.Name, req.ID})
	short, err = lacking(err)
	return v, short, err
}

// refused passes on the error of a request. A final error ends a request, unless it is asked again:
// that one may have a place. If the request was cancelled meanwhile, for instance by Close, it is
// cancelled again, because the server may process it only now.
func (s *session) refused(r requester, again bool, err error) error {
	if again && s.b.member == nil {
		err = momentary(err)
	}
	if driver.IsFinal(err) {
		if !again {
			s.unregister(r.id)
		}
		return err
	}
	s.mu.Lock()
	_, asked := s.requests[r.id]
	s.mu.Unlock()
	if !asked && !unsent(err) {
		r.left()
		r.over(false)
	}
	return err
}

// granted returns the answer for a request that an exchange has granted, which was sent at sent.
func (s *session) granted(ctx context.Context, req *driver.Request, token uint64, sent time.Duration) (
	driver.Reply, error,
) {
	if !s.holds(req.ID, token, sent) {
		if err := s.ensureCancelled(ctx, req.Name, req.ID); err != nil {
			return driver.Reply{}, err
		}
		return driver.Reply{}, fmt.Errorf("%w: the request was cancelled while it was granted", driver.ErrUncertain)
	}
	return driver.Reply{Token: token}, nil
}

func (s *session) Cancel(ctx context.Context, name, id string) error {
	s.unregister(id)
	s.remembers(id, name)
	return s.cancelOnce(ctx, name, id)
}

// cancelOnce is the exchange of a cancellation.
func (s *session) cancelOnce(ctx context.Context, name, id string) error {
	c := s.b.keys(name, "lzmt").str(id).end()
	return verdict(s.b.run(ctx, s.b.scripts.cancel, c))
}

func (s *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	return s.pass(ctx, h, keep, 0)
}

// pass is Release with the token that a member of a quorum proposes for the next waiter.
func (s *session) pass(ctx context.Context, h driver.Hold, keep time.Duration, want uint64) error {
	if keep == 0 && h.Token > 0 && h.Token <= maxToken && s.canDrop(h) {
		c := s.b.keys(h.Name, "l").padded(h.Token, 16).end().counted(h.ID).end()
		v, err := s.b.drop.run(ctx, 0, c, requester{})
		switch {
		case err != nil:
			return err
		case v.Kind == Int && v.Int == 0:
			s.unregister(h.ID)
			return nil
		}
		s.noteContended(h.Name)
	}
	err := s.b.release(ctx, h, keep, want)
	if err == nil || driver.IsOver(err) {
		s.unregister(h.ID)
	}
	return err
}

func (b *Backend) release(ctx context.Context, h driver.Hold, keep time.Duration, want uint64) error {
	switch {
	case h.Token > maxToken || h.Token == 0: // no grant has such a token
		if _, err := b.Inspect(ctx, h.Name); errors.Is(err, driver.ErrDamaged) {
			return err
		}
		return driver.ErrGone
	case keep < 0 || keep > driver.MaxHold:
		return fmt.Errorf("%w time to keep %v: allowed are 0 to %v", driver.ErrInvalid, keep, driver.MaxHold)
	}
	return verdict(b.run(ctx, b.scripts.release, b.releaseCall(h, keep, want)))
}

func (b *Backend) releaseCall(h driver.Hold, keep time.Duration, want uint64) *call {
	return b.proposal(b.keys(h.Name, "lzmt").padded(h.Token, 16).micros(keep), want).end().counted(h.ID).
		end()
}

func (s *session) Downgrade(ctx context.Context, h driver.Hold) error {
	if h.Token > maxToken || h.Token == 0 {
		return driver.ErrGone
	}
	c := s.b.keys(h.Name, "lzmt").str("downgrade").end().str(h.ID).end().padded(h.Token, 16).end()
	err := verdict(s.b.sure(ctx, s.patience, s.b.scripts.change, c, requester{}))
	if err == nil {
		s.regroup(h.ID)
	}
	return err
}

func (s *session) Reduce(ctx context.Context, h driver.Hold, n int) error {
	if err := driver.CheckRemaining(n); err != nil {
		return err
	}
	if h.Token > maxToken || h.Token == 0 {
		return driver.ErrGone
	}
	c := s.b.keys(h.Name, "lzmt").str("reduce").end().str(h.ID).end().padded(h.Token, 16).end().
		padded(uint64(n), 10).end()
	return verdict(s.b.sure(ctx, s.patience, s.b.scripts.change, c, requester{}))
}

// Close also waits for requests under way, which cancel themselves when their answer comes.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	requests, stray := s.requests, s.stray
	s.requests, s.stray = map[string]request{}, nil
	s.mu.Unlock()
	err := s.end(ctx, requests)
	if err == nil && len(stray) > 0 {
		err = s.b.forget(ctx, stray)
	}
	_, landed := obey(ctx, func() any { s.flights.Wait(); return nil }, nil)
	if err == nil && !landed {
		err = noAnswer(ctx)
	}
	_, _ = obey(ctx, func() any { s.stop(); return nil }, nil)
	return err
}

// end releases the grants among requests, and cancels the others, in pipelines of a few hundred.
func (s *session) end(ctx context.Context, requests map[string]request) (err error) {
	const most = 512
	built := make([]*call, 0, most)
	calls := make([]Call, 0, most)
	for id, a := range requests {
		script := s.b.scripts.cancel
		var c *call
		if a.token > 1 {
			script, c = s.b.scripts.release, s.b.releaseCall(driver.Hold{Name: a.name, ID: id, Token: a.token}, 0, 0)
		} else {
			c = s.b.keys(a.name, "lzmt").str(id).end()
		}
		c.done()
		built, calls = append(built, c), append(calls, Call{script, c.keyList(), c.argList()})
		delete(requests, id)
		if len(calls) < most && len(requests) > 0 {
			continue
		}
		err = s.b.runAll(ctx, calls)
		for try := 1; unanswered(err) && try < 3 && ctx.Err() == nil; try++ { // the connection broke
			err = s.b.runAll(ctx, calls)
		}
		if err != nil {
			return err // the calls may still be under way
		}
		for _, c := range built {
			c.free()
		}
		built, calls = built[:0], calls[:0]
	}
	return nil
}

// runAll runs calls in pipelines of a bounded size, and returns the first error.
func (b *Backend) runAll(ctx context.Context, calls []Call) error {
	const most = 1024
	for len(calls) > 0 {
		n := min(len(calls), most)
		for _, r := range b.pipeline(ctx, b.conn.RunAll, calls[:n]) {
			if r.Err != nil {
				return r.Err
			}
		}
		calls = calls[n:]
	}
	return nil
}
