package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// session is a driver.Session.
type session struct {
	b    *Backend
	id   string
	ttl  time.Duration
	stop func() // ends the subscription
	ears ears   // in a Cluster: its subscriptions

	patience time.Duration  // with replicas
	flights  sync.WaitGroup // exchanges that may take a place or a grant
	hooks    Hooks          // of a member of a quorum

	mu        sync.Mutex
	asks      map[string]ask // by request id: all that the session holds, waits for or is asking for
	cancelled cancelled
	quiet     map[string]int8 // names that were granted at once; see calm
	pruned    time.Duration   // when prune was last at work
	closed    bool
	stray     []string // names that the index listed and that may be forgotten
}

// TTL is the one asked for, in whole microseconds.
func (s *session) TTL() time.Duration { return s.ttl }

// Lost is never closed: each lease stands for itself.
func (s *session) Lost() <-chan struct{} { return nil }

// Acquire is driver.Session.Acquire.
func (s *session) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	reply, _, err := s.acquire(ctx, req, 0)
	return reply, err
}

// acquire is Acquire with the token that a member of a quorum proposes. It returns the place in line, too, which
// only a member learns.
func (s *session) acquire(ctx context.Context, req *driver.Request, want uint64) (reply driver.Reply, place uint64, err error) {
	if len(req.ID) > 48 || len(req.Name) > driver.MaxName || req.Mode < driver.Exclusive || req.Mode > driver.Permits {
		return reply, 0, req.Check()
	}
	again, err := s.enter(req.ID, ask{name: req.Name, group: req.Mode != driver.Exclusive})
	if err != nil {
		return reply, 0, err
	}
	defer s.flights.Done()
	px := int((max(s.ttl, req.MinHold) + retention).Milliseconds())
	if req.Mode == driver.Exclusive && s.calm(req.Name) {
		c := s.b.proposal(newCall().name(s.b.prefix, req.Name, "l"), want).micros(s.ttl).micros(req.MinHold).end()
		c.counted(req.ID).counted(s.id).str(req.Info).end().number(px).end()
		v, err := s.b.take.run(ctx, s.patience, c, requester{s, req.Name, req.ID})
		short, err := lacking(err)
		switch {
		case err != nil:
			return reply, 0, s.refused(requester{s, req.Name, req.ID}, again, err)
		case v.Kind == Int && v.Int > 0 && short != nil:
			return reply, 0, s.takeBack(ctx, req.Name, req.ID, short)
		case v.Kind == Int && v.Int > 0:
			reply, err = s.granted(ctx, req, uint64(v.Int))
			return reply, 0, err
		}
		s.contended(req.Name)
	}
	// In a Cluster who does not listen yet asks without waiting first: mostly nobody is in the way.
	wait := req.Wait && (s.b.early || s.listens(req.Name))
	v, short, err := s.ask(ctx, req, wait, px, want)
	if wait != req.Wait && err == nil && v.Kind == List && len(v.List) > 0 && v.List[0].Int == 0 {
		v, short, err = s.ask(ctx, req, true, px, want)
	}
	switch {
	case err != nil:
		return reply, 0, s.refused(requester{s, req.Name, req.ID}, again, err)
	case short != nil && (v.Int > 0 || v.Kind == List && len(v.List) > 0 && v.List[0].Int > 0):
		return reply, 0, s.takeBack(ctx, req.Name, req.ID, short)
	case v.Kind == Text:
		s.leave(req.ID)
		return reply, 0, fmt.Errorf("%w: %s", driver.ErrKind, v.Text)
	case v.Kind == Int && v.Int > 0:
		s.atOnce(req.Name)
		reply, err = s.granted(ctx, req, uint64(v.Int))
		return reply, 0, err
	case v.Kind == List && len(v.List) > 0 && v.List[0].Int > 0:
		s.atOnce(req.Name)
		s.collect(ctx, req.Name, v.List[1:])
		reply, err = s.granted(ctx, req, uint64(v.List[0].Int))
		return reply, 0, err
	case v.Kind != List || len(v.List) < 4:
		return reply, 0, strange(v)
	}
	s.contended(req.Name)
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
		s.leave(req.ID)
		return reply, 0, nil
	}
	wake, ok := s.waits(req.ID, last)
	if !ok { // cancelled meanwhile, and perhaps before the store had heard of it
		return reply, 0, s.takenBack(ctx, req.Name, req.ID)
	}
	reply.Wake = wake
	return reply, place, nil
}

// ask runs acquire.lua. short is not nil if replicas lack what it did.
func (s *session) ask(ctx context.Context, req *driver.Request, wait bool, px int, want uint64) (v Value, short *unreplicated, err error) {
	session, err := s.listening(ctx, req.Name, wait)
	if err != nil {
		return Value{}, nil, err
	}
	c := newCall().name(s.b.prefix, req.Name, "lzmti")
	c.buf = append(c.buf, modes[req.Mode], '0')
	if wait {
		c.buf[len(c.buf)-1] = '1'
	}
	c.micros(s.ttl).micros(req.MinHold).padded(uint64(req.N), 10).padded(uint64(req.Limit), 10)
	s.b.proposal(c, want).end()
	c.counted(req.ID).counted(session).str(req.Info).end().number(px).end()
	v, err = s.b.sure(ctx, s.patience, s.b.scripts.acquire, c, requester{s, req.Name, req.ID})
	short, err = lacking(err)
	return v, short, err
}

// refused passes on an error; a final one ends a request that is not asked again. One that is may have a place. A request
// that was cancelled meanwhile, by Close perhaps, is cancelled again if the server may hear of it only now.
func (s *session) refused(r requester, again bool, err error) error {
	if again && s.b.member == nil {
		err = momentary(err)
	}
	if driver.IsFinal(err) {
		if !again {
			s.leave(r.id)
		}
		return err
	}
	s.mu.Lock()
	_, asked := s.asks[r.id]
	s.mu.Unlock()
	if !asked && !unsent(err) {
		r.left()
		r.over(false)
	}
	return err
}

func (s *session) granted(ctx context.Context, req *driver.Request, token uint64) (driver.Reply, error) {
	if !s.holds(req.ID, token) {
		if err := s.takenBack(ctx, req.Name, req.ID); err != nil {
			return driver.Reply{}, err
		}
		return driver.Reply{}, fmt.Errorf("%w: the request was cancelled while it was granted", driver.ErrUncertain)
	}
	return driver.Reply{Token: token}, nil
}

// undo cancels a request that was cancelled already, and that the store may have heard of
// only after that.
func (s *session) undo(name, id string) {
	s.mu.Lock()
	_, asked := s.asks[id]
	s.mu.Unlock()
	if asked {
		return // it is being asked again
	}
	ctx, cancel := context.WithTimeout(s.b.life, sharedFor)
	defer cancel()
	_ = s.Cancel(ctx, name, id) // else the grant runs out by itself
}

// takenBack cancels a request that has been answered after its cancellation.
func (s *session) takenBack(ctx context.Context, name, id string) error {
	err := s.Cancel(ctx, name, id)
	if err != nil { // nobody else will
		r := requester{s, name, id}
		r.left()
		r.over(false)
	}
	return err
}

// Cancel is driver.Session.Cancel.
func (s *session) Cancel(ctx context.Context, name, id string) error {
	s.leave(id)
	s.remembers(id, name)
	c := newCall().name(s.b.prefix, name, "lzmt").str(id).end()
	return verdict(s.b.run(ctx, s.b.scripts.cancel, c))
}

// Release is driver.Session.Release.
func (s *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	return s.pass(ctx, h, keep, 0)
}

// pass is Release with the token that a member of a quorum proposes for the next in line.
func (s *session) pass(ctx context.Context, h driver.Hold, keep time.Duration, want uint64) error {
	if keep == 0 && h.Token > 0 && h.Token <= maxToken && s.simple(h) {
		c := newCall().name(s.b.prefix, h.Name, "l").padded(h.Token, 16).end().counted(h.ID).end()
		v, err := s.b.drop.run(ctx, 0, c, requester{})
		switch {
		case err != nil:
			return err
		case v.Kind == Int && v.Int == 0:
			s.leave(h.ID)
			return nil
		}
		s.contended(h.Name)
	}
	err := s.b.release(ctx, h, keep, want)
	if err == nil || driver.IsOver(err) {
		s.leave(h.ID)
	}
	return err
}

func (b *Backend) release(ctx context.Context, h driver.Hold, keep time.Duration, want uint64) error {
	switch {
	case h.Token > maxToken || h.Token == 0: // no grant has it
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
	return b.proposal(newCall().name(b.prefix, h.Name, "lzmt").padded(h.Token, 16).micros(keep), want).end().counted(h.ID).end()
}

// Downgrade is driver.Session.Downgrade.
func (s *session) Downgrade(ctx context.Context, h driver.Hold) error {
	if h.Token > maxToken || h.Token == 0 {
		return driver.ErrGone
	}
	c := newCall().name(s.b.prefix, h.Name, "lzmt").str("downgrade").end().str(h.ID).end().padded(h.Token, 16).end()
	err := verdict(s.b.sure(ctx, s.patience, s.b.scripts.change, c, requester{}))
	if err == nil {
		s.regroup(h.ID)
	}
	return err
}

// Adopt is driver.Session.Adopt.
func (s *session) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if err := driver.CheckID(id); err != nil {
		return err
	}
	if h.Token > maxToken || h.Token == 0 {
		return driver.ErrGone
	}
	fresh, err := s.adopts(id, h)
	if err != nil {
		return err
	}
	defer s.flights.Done()
	c := newCall().name(s.b.prefix, h.Name, "lzmt").str("adopt").end().str(h.ID).end().padded(h.Token, 16).end().
		micros(s.ttl).end().str(s.id).end().str(id).end().str(info).end()
	v, err := s.b.sure(ctx, s.patience, s.b.scripts.change, c, requester{s, h.Name, id})
	if _, failed := lacking(err); failed == nil && v.Kind == Int && v.Int == 3 {
		err = fmt.Errorf("%w id: it stands for another request of %q", driver.ErrInvalid, h.Name)
	} else {
		err = verdict(v, err)
	}
	if err != nil {
		if fresh && (driver.IsFinal(err) || driver.IsOver(err)) {
			s.leave(id)
		}
		return err // if the outcome is open, Close gives it back
	}
	s.regroup(id)
	if !s.holds(id, h.Token) { // cancelled meanwhile, and perhaps before the store had heard of it
		if err := s.takenBack(ctx, h.Name, id); err != nil {
			return err
		}
		return fmt.Errorf("%w: the request was cancelled while it was granted", driver.ErrUncertain)
	}
	return nil
}

// Close is driver.Session.Close. Requests that are under way cancel themselves when they are answered; it waits
// for them, too.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	asks, stray := s.asks, s.stray
	s.asks, s.stray = map[string]ask{}, nil
	s.mu.Unlock()
	err := s.end(ctx, asks)
	if err == nil && len(stray) > 0 {
		err = s.b.forget(ctx, stray)
	}
	_, landed := obey(ctx, func() any { s.flights.Wait(); return nil }, nil)
	if err == nil && !landed {
		err = unheard(ctx)
	}
	_, _ = obey(ctx, func() any { s.stop(); return nil }, nil)
	return err
}

// end gives back the grants among asks and cancels the others, a pipeline for each few hundred.
func (s *session) end(ctx context.Context, asks map[string]ask) (err error) {
	const most = 512
	built := make([]*call, 0, most)
	calls := make([]Call, 0, most)
	for id, a := range asks {
		script := s.b.scripts.cancel
		var c *call
		if a.token > 1 {
			script, c = s.b.scripts.release, s.b.releaseCall(driver.Hold{Name: a.name, ID: id, Token: a.token}, 0, 0)
		} else {
			c = newCall().name(s.b.prefix, a.name, "lzmt").str(id).end()
		}
		c.done()
		built, calls = append(built, c), append(calls, Call{script, c.keyList(), c.argList()})
		delete(asks, id)
		if len(calls) < most && len(asks) > 0 {
			continue
		}
		err = s.b.runAll(ctx, calls)
		for try := 1; unanswered(err) && try < 3 && ctx.Err() == nil; try++ { // the connection broke, for another's sake perhaps
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

func micros(n int64) time.Duration {
	return time.Duration(max(n, 0)) * time.Microsecond
}
