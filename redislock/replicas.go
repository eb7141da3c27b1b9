package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// With Config.WaitReplicas an answer that a caller relies on counts only after so many replicas
// have confirmed it: grants, renewals, adoptions, downgrades, breaks, latch counts. The script and
// WAIT go together on one connection, because WAIT covers what its own connection has written.
//
// Other answers are not confirmed. A failover that forgets a release, a cancellation or a place in
// the queue costs time, never the lock: the old lease expires, or the waiter queues again.
//
// Renewals must be confirmed too. If only the primary knows a renewal, the lease ends earlier at
// the replica. Once promoted, the replica would give the lock to the next client while the first
// still trusts its lease. A client that is cut off from the replicas together with the primary gets
// no confirmation, so it stops trusting its lease in time. An answer that a grant is gone needs no
// confirmation: it is always safe to believe.

const (
	defaultWait = 500 * time.Millisecond // for replicas, or a quarter of the TTL if that is shorter
	waitSlack   = 3 * time.Second        // beyond the wait for replicas, before a silent server is given up
	mostWait    = 32                     // replicas
)

// unreplicated says that the primary has done what was asked, but too few replicas confirmed it.
type unreplicated struct {
	acked, want int
	within      time.Duration
	cause       error // why WAIT failed
}

func (e *unreplicated) Error() string { return fmt.Sprintf("%v: %s", driver.ErrUncertain, e.text()) }

func (e *unreplicated) text() string {
	if e.cause != nil {
		return fmt.Sprintf("done at the primary, but whether %d replicas have it is not known: %v", e.want, e.cause)
	}
	return fmt.Sprintf("done at the primary, but only %d of %d replicas confirmed it within %v", e.acked, e.want,
		e.within.Round(time.Millisecond))
}

func (e *unreplicated) Unwrap() []error { return []error{driver.ErrUncertain, e.cause} }

// lacking separates a lack of confirmations from all other errors.
func lacking(err error) (*unreplicated, error) {
	if short, ok := err.(*unreplicated); ok { // sure returns it unwrapped
		return short, nil
	}
	return nil, err
}

// checkReplicas checks what Config says about replicas.
func checkReplicas(cfg *Config) error {
	switch {
	case cfg.WaitReplicas < 0 || cfg.WaitReplicas > mostWait:
		return fmt.Errorf("%w WaitReplicas %d: allowed are 0 to %d", driver.ErrInvalid, cfg.WaitReplicas, mostWait)
	case cfg.WaitTimeout != 0 && cfg.WaitReplicas == 0:
		return fmt.Errorf("%w WaitTimeout %v: it needs WaitReplicas", driver.ErrInvalid, cfg.WaitTimeout)
	case cfg.WaitTimeout != 0 && (cfg.WaitTimeout < time.Millisecond || cfg.WaitTimeout > driver.MaxTTL/3):
		return fmt.Errorf("%w WaitTimeout %v: allowed are 1ms to a third of the TTL", driver.ErrInvalid, cfg.WaitTimeout)
	}
	return nil
}

// patience returns how long a session with that TTL waits for replicas.
func (b *Backend) patience(ttl time.Duration) (time.Duration, error) {
	if b.waitTimeout == 0 {
		return min(defaultWait, ttl/4), nil
	}
	if b.waitTimeout > ttl/3 {
		return 0, fmt.Errorf("%w WaitTimeout %v: at most a third of the TTL of %v is allowed", driver.ErrInvalid,
			b.waitTimeout, ttl)
	}
	return b.waitTimeout, nil
}

// sure is run for answers that the caller relies on. If replicas have to confirm the answer and did
// not, it returns the answer together with an *unreplicated.
func (b *Backend) sure(ctx context.Context, patience time.Duration, s *Script, c *call, of requester) (Value, error) {
	if b.waitReplicas == 0 {
		return b.runFor(ctx, s, c, of)
	}
	c.done()
	r := b.apart(ctx, patience, func(ctx context.Context, patience time.Duration) []Result {
		defer c.free()
		return b.confirm(ctx, patience, []Call{{s, c.keyList(), c.argList()}}, true)
	}, of)
	if r.err != nil {
		return Value{}, r.err
	}
	return r.all[0].Value, r.all[0].Err
}

// sureAll is RunAll for answers that the caller relies on; see sure. If again is true, calls
// refused because of a moving slot are retried.
func (b *Backend) sureAll(ctx context.Context, patience time.Duration, calls []Call, again bool) []Result {
	switch {
	case b.waitReplicas == 0 && again:
		return b.pipeline(ctx, b.conn.RunAll, calls)
	case b.waitReplicas == 0:
		return b.conn.RunAll(ctx, calls)
	}
	r := b.apart(ctx, patience, func(ctx context.Context, patience time.Duration) []Result {
		return b.confirm(ctx, patience, calls, again)
	}, requester{})
	if r.err != nil {
		return failed(len(calls), r.err)
	}
	return r.all
}

type results struct {
	all []Result
	err error // the caller's context ended
}

// apart runs f in a goroutine, which the caller leaves when ctx ends. f still completes: the
// replicas may confirm what the caller then cancels.
func (b *Backend) apart(ctx context.Context, patience time.Duration, f func(context.Context, time.Duration) []Result,
	of requester) results {
	if b.err != nil {
		return results{err: b.err}
	}
	if err := ctx.Err(); err != nil {
		return results{err: fmt.Errorf("%w: %w", driver.ErrUnavailable, err)}
	}
	// Leave the caller time to learn how many replicas have it, and to take it back.
	if end, ok := ctx.Deadline(); ok {
		patience = max(min(patience, time.Until(end)*3/4), time.Millisecond)
	}
	of.left()
	all, ok := obey(ctx, func() []Result {
		ctx, cancel := context.WithTimeout(b.life, patience+waitSlack)
		defer cancel()
		return f(ctx, patience)
	}, func(all []Result) { of.over(unsent(all[0].Err)) })
	if !ok {
		return results{err: noAnswer(ctx)}
	}
	of.over(true)
	for i := range all {
		if _, err := lacking(all[i].Err); err != nil {
			all[i].Err = callers(ctx, err)
		}
	}
	return results{all: all}
}

// confirm runs calls and waits for replicas. A result that too few replicas confirmed has an
// *unreplicated as its error.
func (b *Backend) confirm(ctx context.Context, patience time.Duration, calls []Call, again bool) []Result {
	run := func(ctx context.Context, calls []Call) []Result { return b.confirmOnce(ctx, patience, calls) }
	if !again {
		return run(ctx, calls)
	}
	return b.pipeline(ctx, run, calls)
}

func (b *Backend) confirmOnce(ctx context.Context, patience time.Duration, calls []Call) []Result {
	if !b.cluster || len(calls) == 1 {
		return b.confirmHere(ctx, patience, calls)
	}
	// WAIT covers one server, so each slot has its own exchange.
	results, parts := make([]Result, len(calls)), map[string][]int{}
	for i, c := range calls {
		tag, _, _ := strings.Cut(c.Keys[0], "}")
		parts[tag] = append(parts[tag], i)
	}
	var all sync.WaitGroup
	for _, of := range parts {
		all.Go(func() {
			part := make([]Call, len(of))
			for j, i := range of {
				part[j] = calls[i]
			}
			for j, r := range b.confirmHere(ctx, patience, part) {
				results[of[j]] = r
			}
		})
	}
	all.Wait()
	return results
}

// confirmHere is confirm for calls whose keys are on one server.
func (b *Backend) confirmHere(ctx context.Context, patience time.Duration, calls []Call) []Result {
	all, acked, err := b.conn.RunWait(ctx, calls, b.waitReplicas, patience)
	if err != nil || acked < b.waitReplicas {
		short := &unreplicated{acked, b.waitReplicas, patience, err}
		for i := range all {
			if all[i].Err == nil {
				all[i].Err = short
			}
		}
	}
	return all
}

// takeBack cancels a grant that too few replicas have. Its token is still secret. But a renewal
// under way may report the grant, and a cancellation without an answer may still take effect. So
// the request is spent.
func (s *session) takeBack(ctx context.Context, name, id string, short *unreplicated) error {
	s.unregister(id)
	if err := s.ensureCancelled(ctx, name, id); err != nil {
		return driver.Spent(fmt.Errorf("%w; it could not be taken back: %w", short, err))
	}
	if short.cause != nil && errors.Is(short.cause, driver.ErrRefused) {
		return driver.Spent(fmt.Errorf("%w: WAIT: %w; the grant was taken back", driver.ErrRefused, short.cause))
	}
	return driver.Spent(fmt.Errorf("%w: %s; it was taken back", driver.ErrUnavailable, short.text()))
}

// handOver gives a waiter what was pushed for it: the token of its grant, or 0. The caller holds
// s.mu.
func (s *session) handOver(id string, a *request, token uint64) {
	switch {
	case s.b.waitReplicas == 0 || token == 0:
		a.wake.Put(token)
	case token == 1: // of a latch: Await confirms it
		a.wake.Put(0)
	case a.confirms: // any push may come twice
	default:
		a.confirms = true
		name := a.name
		go s.confirmed(name, id, token)
	}
}

// confirmed wakes a waiter with a handed-over grant once replicas have it. It writes to the record,
// so its WAIT covers the grant; it does not prolong the lease. Without confirmation the waiter asks
// again. If replicas still do not confirm the grant then, it is taken back.
func (s *session) confirmed(name, id string, token uint64) {
	c := s.b.keys(name, "lzmt").str("confirm").end().str(id).end().padded(token, 16).end()
	err := verdict(s.b.sure(s.b.life, s.patience, s.b.scripts.change, c, requester{}))
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.requests[id]
	if ok {
		a.confirms = false
		s.requests[id] = a
	}
	switch {
	case !ok || !a.waits || a.token != token: // cancelled, or being asked for
	case err != nil:
		a.wake.Put(0)
	default:
		a.wake.Put(token)
	}
}
