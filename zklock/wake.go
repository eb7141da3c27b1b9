package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// waker is a watch's callback that brings e further.
func (e *entry) waker() func(zk.Event) {
	turn := e.turn
	return func(ev zk.Event) {
		if ev.Type != zk.EventSessionLost {
			e.s.spawn(func() { e.wakened(turn) })
		}
	}
}

// hearer is a watch's callback that takes what is handed over, or if e is busy just now, has
// heard of it for who is.
func (e *entry) hearer() func(zk.Event) bool {
	turn := e.turn
	return func(ev zk.Event) bool {
		if ev.Type != zk.EventDataChanged {
			return false
		}
		e.s.mu.Lock()
		e.heard = turn
		e.s.mu.Unlock()
		return e.takeOver()
	}
}

// handedOver reports whether the holder in front has said that it leaves the lock to e.
func (e *entry) handedOver() bool {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.told && e.heard == e.turn && e.state == waiting && !e.unsure && !e.dead && e.s.l.isSealed()
}

// takeOver makes e held if it was handed the lock and there is nothing to ask. It reports
// false if that has to be looked into.
func (e *entry) takeOver() bool {
	select {
	case e.gate <- struct{}{}:
	default:
		return false
	}
	defer e.unlock()
	if !e.handedOver() || e.req.MinHold > 0 {
		return false
	}
	e.hold()
	e.push(e.token)
	return true
}

// hold makes e held.
func (e *entry) hold() {
	e.unwatch()
	e.become(held, e.token, e.nodes...)
	e.s.won(e.dir)
}

// wakened goes on with e after one of its watches has fired, until it stands somewhere anew.
func (e *entry) wakened(turn int) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := e.s.soon()
		done := e.advance(ctx, &turn)
		cancel()
		if done {
			return
		}
		select {
		case <-time.After(pause):
		case <-e.s.l.Lost():
			return
		case <-e.s.life.Done():
			return
		}
	}
}

// advance reports whether e stands somewhere anew, or does not wait for this turn any more. If
// it failed, it is to be tried again with the turn that it leaves.
func (e *entry) advance(ctx context.Context, turn *int) bool {
	if err := e.lock(ctx); err != nil {
		return false
	}
	defer e.unlock()
	if e.isDead() || e.turn != *turn || e.state != waiting || e.unsure {
		return true
	}
	defer func() { *turn = e.turn }()
	done, _ := e.goOn(ctx)
	return done
}

// nudge is advance for who was not woken: it returns how much longer the name is kept.
func (e *entry) nudge(ctx context.Context) (time.Duration, error) {
	if err := e.lock(ctx); err != nil {
		return 0, err
	}
	defer e.unlock()
	if e.isDead() || e.state != waiting || e.unsure {
		return 0, nil
	}
	_, left := e.goOn(ctx)
	return left, nil
}

// goOn settles e and pushes what came of it. It reports false if it failed, and how much
// longer the name is kept if that is what is in the way.
func (e *entry) goOn(ctx context.Context) (done bool, left time.Duration) {
	e.fresh = nil
	for range manyTries {
		if e.handedOver() {
			reply, _, err := e.win(ctx)
			if err != nil || reply.Token == 0 {
				return false, 0
			}
			e.push(reply.Token)
			return true, 0
		}
		all, err := e.relist(ctx, e.folders()...)
		if err != nil {
			return false, 0
		}
		reply, again, err := e.settle(ctx, all, true)
		switch {
		case err != nil && errors.Is(err, driver.ErrKind):
			e.push(0)
			return true, 0
		case err != nil:
			return false, 0
		case reply.Token != 0:
			e.push(reply.Token)
			return true, 0
		case e.state == idle: // its contender is gone
			e.push(0)
			return true, 0
		case !again:
			if reply.Retry > 0 { // who waits is to learn until when the name is kept
				e.push(0)
			}
			return true, reply.Retry
		}
	}
	return false, 0
}
