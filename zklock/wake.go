package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// onEvent returns the callback of a watch that continues e.
func (e *entry) onEvent() func(zk.Event) {
	generation := e.generation
	return func(ev zk.Event) {
		if ev.Type != zk.EventSessionLost {
			e.s.spawn(func() { e.followUp(generation) })
		}
	}
}

// onHandOver returns the callback of a watch that takes a lock which was handed over. If another
// exchange about e is going on, the callback only records the change, and that exchange finds it.
func (e *entry) onHandOver() func(zk.Event) bool {
	generation := e.generation
	return func(ev zk.Event) bool {
		if ev.Type != zk.EventDataChanged {
			return false
		}
		e.s.mu.Lock()
		e.changedIn = generation
		e.s.mu.Unlock()
		return e.takeOver()
	}
}

// handedOver reports whether the holder in front has handed the lock to e.
func (e *entry) handedOver() bool {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.changeHandsOver && e.changedIn == e.generation && e.state == waiting && !e.unsure && !e.dead &&
		e.s.l.aclsEnforced()
}

// takeOver makes e held if the lock was handed to it and no exchange is needed. It returns false if
// e must be evaluated.
func (e *entry) takeOver() bool {
	select {
	case e.mutex <- struct{}{}:
	default:
		return false
	}
	defer e.unlock()
	if !e.handedOver() || e.req.MinHold > 0 {
		return false
	}
	e.setHeld()
	e.push(e.token)
	return true
}

// setHeld records that e is held.
func (e *entry) setHeld() {
	e.unwatch()
	e.setState(held, e.token, e.nodes...)
	e.s.noteGranted(e.dir)
}

// followUp continues e after one of its watches has fired, until its new state is known.
func (e *entry) followUp(generation int) {
	e.s.insist(func(ctx context.Context) bool { return e.advance(ctx, &generation) })
}

// advance evaluates e. It returns true if e's new state is known, or e no longer waits in this
// generation. If it returns false, the caller repeats it with the generation that advance stored.
func (e *entry) advance(ctx context.Context, generation *int) bool {
	if err := e.lock(ctx); err != nil {
		return false
	}
	defer e.unlock()
	if e.isDead() || e.generation != *generation || e.state != waiting || e.unsure {
		return true
	}
	defer func() { *generation = e.generation }()
	done, _ := e.progress(ctx)
	return done
}

// recheck evaluates e although no watch has fired. It returns how much longer the name is kept.
func (e *entry) recheck(ctx context.Context) (time.Duration, error) {
	if err := e.lock(ctx); err != nil {
		return 0, err
	}
	defer e.unlock()
	if e.isDead() || e.state != waiting || e.unsure {
		return 0, nil
	}
	_, left := e.progress(ctx)
	return left, nil
}

// progress evaluates e and pushes the result. done is false if that failed. left is how much longer
// the name is kept, if only that is in the way.
func (e *entry) progress(ctx context.Context) (done bool, left time.Duration) {
	e.fresh = nil
	for range manyTries {
		if e.handedOver() {
			reply, _, err := e.completeGrant(ctx)
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
		reply, again, err := e.evaluate(ctx, all, true)
		switch {
		case err != nil && errors.Is(err, driver.ErrKind):
			e.push(0)
			return true, 0
		case err != nil:
			return false, 0
		case reply.Token != 0:
			e.push(reply.Token)
			return true, 0
		case e.state == idle: // somebody deleted its contender
			e.push(0)
			return true, 0
		case !again:
			if reply.Retry > 0 { // the waiter must learn until when the name is kept
				e.push(0)
			}
			return true, reply.Retry
		}
	}
	return false, 0
}
