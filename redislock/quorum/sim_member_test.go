package quorum

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/internal/waiters"
	"github.com/holdfast-lock/holdfast/redislock"
)

// simMember is a client's session at a server.
type simMember struct {
	w   *world
	v   *simServer
	s   *session
	p   *endpoint
	ctx context.Context

	mu      sync.Mutex
	asks    map[string]*simAsk
	undoing map[string]int    // cancellations that the session sends by itself, by request ID
	limits  map[string]uint64 // of those that have no answer
	largest uint64
}

// simAsk is what redislock's session knows of a request: see its wake.go.
type simAsk struct {
	wake  waiters.Slot
	waits bool
	held  bool
	early uint64
}

// delay is how long a message takes.
func (w *world) delay() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := time.Duration(w.rng.IntN(400)) * time.Microsecond
	if w.rng.IntN(20) == 0 {
		d += time.Duration(w.rng.IntN(8000)) * time.Microsecond
	}
	return d
}

func (w *world) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < w.lose
}

// lingers returns when a request arrives that its caller gives up; 0: it is none.
func (w *world) lingers() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.linger == 0 || w.rng.Float64() >= w.linger {
		return 0
	}
	return time.Millisecond + time.Duration(w.rng.Int64N(int64(w.ttl/2)))
}

// exchange carries a request to the server and the answer back. If the caller has given the request up,
// then is called when it has arrived.
func (m *simMember) exchange(ctx context.Context, f func(v *simServer) error, then ...func()) error {
	m.w.mu.Lock()
	late := m.w.late
	m.w.mu.Unlock()
	if d := m.w.lingers(); d > 0 {
		m.w.lingering.Go(func() {
			time.Sleep(d)
			m.w.mu.Lock()
			if !m.v.dead && time.Until(m.v.out) <= 0 {
				m.v.advance(0)
				_ = f(m.v)
				m.v.advance(0)
			}
			m.w.mu.Unlock()
			<-ctx.Done()
			for _, f := range then {
				f()
			}
		})
		<-ctx.Done()
		return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
	}
	if !backoff.Sleep(ctx, late+m.w.delay()) {
		return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
	}
	m.w.mu.Lock()
	dead, left, clock := m.v.dead, time.Until(m.v.out), m.v.clock()
	var err error
	if !dead && left <= 0 {
		m.v.advance(0)
		err = f(m.v)
		m.v.advance(0)
	}
	m.w.mu.Unlock()
	if dead || m.w.lost() {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
	}
	if !backoff.Sleep(ctx, m.w.delay()) {
		return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
	}
	m.saw(time.Duration(clock) * time.Microsecond)
	if left > 0 {
		return &redislock.Newborn{Left: left}
	}
	return err
}

// saw records the server's clock, as an answer shows it.
func (m *simMember) saw(clock time.Duration) {
	c := m.s.b.clocks
	c.mu.Lock()
	defer c.mu.Unlock()
	now := max(time.Since(c.start), 1)
	v := &c.views[m.p.index]
	v.lo, v.hi, v.at = clock-now, clock-now, now
}

// push sends the session a grant, after a delay. The caller holds w.mu.
func (m *simMember) push(id string, token uint64) {
	go func() {
		if m.w.lost() || !backoff.Sleep(m.ctx, m.w.delay()) {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		a := m.asks[id]
		switch {
		case a == nil || token <= a.early:
		case a.waits && token <= m.limits[id]:
			a.wake.Put(0)
			m.s.pushed(m.p, id)
		case a.waits:
			a.wake.Put(token)
			a.held = true
			m.s.pushed(m.p, id)
		case !a.held:
			a.early = max(a.early, token)
		}
	}()
}

func (m *simMember) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	m.mu.Lock()
	if m.undoing[req.ID] > 0 {
		m.mu.Unlock()
		return driver.Reply{}, 0, driver.ErrUnavailable
	}
	m.largest = max(m.largest, propose)
	a := m.asks[req.ID]
	if a == nil {
		a = &simAsk{wake: waiters.NewSlot()}
		m.asks[req.ID] = a
	}
	a.wake.Drain()
	a.waits, a.held, a.early = false, false, 0
	m.mu.Unlock()
	var reply driver.Reply
	var place, last uint64
	err := m.exchange(ctx, func(v *simServer) error {
		end := v.till(time.Time{}, req.Lease)
		me := simPlace{req.ID, 0, req.Block(), end, req.MinHold, m}
		switch i := v.find(req.ID); {
		case v.held() && v.holder.id == req.ID:
			v.end, reply.Token = v.till(v.end, req.Lease), v.token
		case v.token != 0 && v.holder.id == req.ID && !v.end.IsZero(): // only its lease is over
			until := v.kept
			v.give(me, end, propose)
			if v.kept.Before(until) {
				v.kept = until
			}
			reply.Token = v.token
		case i >= 0:
			v.queue[i].deadline, place = v.till(v.queue[i].deadline, req.Lease), v.queue[i].place
		case v.token == 0 && len(v.queue) == 0:
			v.give(me, end, propose)
			reply.Token = v.token
		case req.Wait:
			v.seq++
			me.place, place = v.seq, v.seq
			v.join(me)
		}
		if reply.Token == 0 {
			last = v.last
			reply.Holder = &driver.Holder{ID: v.holder.id, Token: v.token, Kept: v.token != 0 && !v.held()}
			reply.Retry = max(time.Until(v.end), time.Until(v.kept))
		}
		return nil
	}, func() { m.undo(req.ID) })
	if err != nil {
		return driver.Reply{}, 0, err
	}
	m.mu.Lock()
	cancelled := m.asks[req.ID] != a
	switch {
	case cancelled:
	case reply.Token != 0:
		a.held, a.waits, m.largest = true, false, max(m.largest, reply.Token)
	case req.Wait:
		a.waits, a.held = true, false
		if a.early > last {
			a.wake.Put(a.early)
		}
		a.early = last
		reply.Wake = a.wake
	}
	limit := m.limits[req.ID]
	m.mu.Unlock()
	if cancelled {
		m.undo(req.ID)
		return driver.Reply{}, 0, driver.ErrUncertain
	}
	if reply.Token != 0 && reply.Token <= limit {
		h := driver.Hold{Name: req.Name, ID: req.ID, Token: reply.Token}
		if reply.Token, _, err = m.Raise(ctx, h, limit+1, 0); err != nil {
			return driver.Reply{}, 0, driver.ErrUnavailable
		}
	}
	return reply, place, nil
}

// undo cancels a request that has ended: see cancelByItself of redislock.
func (m *simMember) undo(id string) {
	m.mu.Lock()
	if m.asks[id] != nil {
		m.mu.Unlock()
		return
	}
	m.undoing[id]++
	limit, late := max(m.largest, 1), m.limits[id]
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	var err error
	for limit > 0 && err == nil {
		m.mu.Lock()
		m.limits[id] = max(m.limits[id], limit)
		m.mu.Unlock()
		limit, err = m.Withdraw(ctx, "", id, limit)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.undoing[id]--; m.undoing[id] == 0 && err == nil {
		m.limits[id] = late
	}
}

func (m *simMember) leave(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asks, id)
}

func (m *simMember) Cancel(ctx context.Context, name, id string) error {
	_, err := m.Withdraw(ctx, name, id, math.MaxUint64)
	return err
}

func (m *simMember) Withdraw(ctx context.Context, _, id string, limit uint64) (uint64, error) {
	m.leave(id)
	var stays uint64
	err := m.exchange(ctx, func(v *simServer) error {
		if i := v.find(id); i >= 0 {
			v.queue = slices.Delete(v.queue, i, i+1)
		}
		switch {
		case !v.held() || v.holder.id != id:
		case v.token <= limit || m.w.flaw == noLimit:
			v.drop()
		default:
			stays = v.token
		}
		return nil
	})
	if err != nil { // it may still arrive, and write stays
		return 0, err
	}
	return stays, nil
}

func (m *simMember) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	err := m.exchange(ctx, func(v *simServer) error {
		if err := v.owned(h.ID, h.Token); err != nil {
			return err
		}
		if v.end = (time.Time{}); m.w.flaw == keepsNothing {
			v.kept = time.Time{}
		}
		if until := time.Now().Add(keep); keep > 0 && v.kept.Before(until) {
			v.kept = until
		}
		v.advance(propose)
		return nil
	})
	if err == nil || driver.IsOver(err) {
		m.leave(h.ID)
	}
	return err
}

func (m *simMember) Raise(ctx context.Context, h driver.Hold, token uint64, lease time.Duration) (
	uint64, time.Duration, error) {
	var got uint64
	var clock time.Duration
	err := m.exchange(ctx, func(v *simServer) error {
		if err := v.owned(h.ID, h.Token); err != nil {
			return err
		}
		if token > v.token && m.w.flaw == forgetsRaise {
			got, clock = token, time.Duration(v.clock())*time.Microsecond
			return nil
		}
		if token > v.token {
			v.token, v.last = token, token
		}
		if lease > 0 {
			v.end = v.till(v.end, lease)
		}
		got, clock = v.token, time.Duration(v.clock())*time.Microsecond
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return got, clock, nil
}

func (m *simMember) Keep(ctx context.Context, h driver.Hold, upTo uint64, left time.Duration) error {
	return m.exchange(ctx, func(v *simServer) error {
		if err := v.owned(h.ID, h.Token); err != nil {
			return err
		}
		if v.token > upTo {
			return driver.ErrGone
		}
		if until := time.Now().Add(left); v.kept.Before(until) {
			v.kept = until
		}
		return nil
	})
}

func (m *simMember) Move(ctx context.Context, _, id string, place uint64) error {
	return m.exchange(ctx, func(v *simServer) error {
		if i := v.find(id); i >= 0 {
			p := v.queue[i]
			p.place, v.seq = place, place
			v.queue = slices.Delete(v.queue, i, i+1)
			v.join(p)
		}
		return nil
	})
}

func (m *simMember) Claim(ctx context.Context, _, id string, rank int, token uint64) error {
	return m.exchange(ctx, func(v *simServer) error {
		i := v.find(id)
		if i < 0 {
			return driver.ErrGone
		}
		lapsed := v.token != 0 && !v.held() && (!v.end.IsZero() || v.token <= token)
		if p := v.queue[i]; rank == 0 && lapsed { // the grant has no majority
			v.queue = slices.Delete(v.queue, i, i+1)
			v.give(p, p.deadline, 0)
			p.who.push(p.id, v.token)
			return nil
		}
		if h := v.holder; v.held() && m.w.flaw != noClaims {
			go func() {
				if !m.w.lost() && backoff.Sleep(h.who.ctx, m.w.delay()) {
					h.who.s.claimed(h.who.p, h.id, rank, id)
				}
			}()
		}
		return nil
	})
}
