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

// With Config.WaitReplicas nothing counts that a caller will rely on before so many replicas
// have confirmed it: grants, renewals, adoptions, downgrades, breaks, counts of a latch. The
// script and WAIT are sent together on one connection, because WAIT speaks of what its own
// connection has written; on another it would promise what it has not looked at.
//
// What a caller does not rely on is not waited for. A release, a cancellation or a place in
// line that a failover forgets costs time (the old lease runs out, the place is taken again),
// never the lock.
//
// Renewals have to be confirmed, too. A renewal that only the primary knows makes the holder
// trust a lease that ends earlier at the replica: if that is promoted it gives the lock to the
// next while the first still counts on it. So whoever is cut off from the replicas, with the
// primary, stops trusting in time. A renewal's answer that a grant is gone needs nobody's
// confirmation: who believes it is on the safe side.

const (
	defaultWait = 500 * time.Millisecond // for replicas, unless the TTL is shorter than four times that
	waitSlack   = 3 * time.Second        // beyond the wait for replicas, after which a silent server is given up
	mostWait    = 32                     // replicas
)

// unreplicated says that the primary has done what it was asked, and too few replicas have
// confirmed it.
type unreplicated struct {
	acked, want int
	within      time.Duration
	cause       error // WAIT failed
}

func (e *unreplicated) Error() string { return fmt.Sprintf("%v: %s", driver.ErrUncertain, e.text()) }

func (e *unreplicated) text() string {
	if e.cause != nil {
		return fmt.Sprintf("done at the primary, but whether %d replicas have it is not known: %v", e.want, e.cause)
	}
	return fmt.Sprintf("done at the primary, but only %d of %d replicas confirmed it within %v", e.acked, e.want, e.within.Round(time.Millisecond))
}

func (e *unreplicated) Unwrap() []error { return []error{driver.ErrUncertain, e.cause} }

// lacking tells an exchange that replicas did not confirm from one that failed.
func lacking(err error) (*unreplicated, error) {
	if short, ok := err.(*unreplicated); ok { // sure returns it unwrapped
		return short, nil
	}
	return nil, err
}

// checkReplicas looks at what Config says of replicas.
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

// patience is how long a session with that TTL waits for replicas.
func (b *Backend) patience(ttl time.Duration) (time.Duration, error) {
	if b.waitTimeout == 0 {
		return min(defaultWait, ttl/4), nil
	}
	if b.waitTimeout > ttl/3 {
		return 0, fmt.Errorf("%w WaitTimeout %v: at most a third of the TTL of %v is allowed", driver.ErrInvalid, b.waitTimeout, ttl)
	}
	return b.waitTimeout, nil
}

// sure is run for what the caller relies on. If replicas have to confirm it and did not, the
// error is an *unreplicated beside the script's answer.
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

// sureAll is RunAll for what the caller relies on; see sure. Calls that are refused because their
// slot is on its way are repeated if again is true.
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

// apart runs f beside its caller, who leaves when ctx ends. The answer is waited for all the same: the
// replicas may confirm what the caller then cancels.
func (b *Backend) apart(ctx context.Context, patience time.Duration, f func(context.Context, time.Duration) []Result, of requester) results {
	if b.err != nil {
		return results{err: b.err}
	}
	if err := ctx.Err(); err != nil {
		return results{err: fmt.Errorf("%w: %w", driver.ErrUnavailable, err)}
	}
	// The caller shall hear how many replicas have it, and still have time to take it back.
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
		return results{err: unheard(ctx)}
	}
	of.over(true)
	for i := range all {
		if _, err := lacking(all[i].Err); err != nil {
			all[i].Err = callers(ctx, err)
		}
	}
	return results{all: all}
}

// confirm runs calls and waits for replicas. Answers that too few have confirmed get an
// *unreplicated beside them.
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
	// WAIT speaks of one server: each slot has an exchange of its own.
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

// takeBack gives back a grant that too few replicas have. Nobody has been told its token. A renewal that
// is under way may still tell of it, and a cancellation without an answer may still be carried out: so
// the request is spent.
func (s *session) takeBack(ctx context.Context, name, id string, short *unreplicated) error {
	if err := s.Cancel(ctx, name, id); err != nil {
		return driver.Spent(fmt.Errorf("%w; it could not be taken back: %w", short, err))
	}
	if short.cause != nil && errors.Is(short.cause, driver.ErrRefused) {
		return driver.Spent(fmt.Errorf("%w: WAIT: %w; the grant was taken back", driver.ErrRefused, short.cause))
	}
	return driver.Spent(fmt.Errorf("%w: %s; it was taken back", driver.ErrUnavailable, short.text()))
}

// handOver tells a waiter what was pushed for it: the token of its grant, or 0. Called with
// s.mu held.
func (s *session) handOver(id string, a *ask, token uint64) {
	switch {
	case s.b.waitReplicas == 0 || token == 0:
		a.push(token)
	case token == 1: // of a latch: Await makes sure
		a.push(0)
	case a.confirms: // anybody may repeat a push
	default:
		a.confirms = true
		name := a.name
		go s.confirmed(name, id, token)
	}
}

// confirmed tells a waiter of a grant that was handed over to it once replicas have it. What
// is written to that end comes after the grant in the stream that they follow; it does not
// prolong the lease. If they do not confirm it the waiter asks again, and the grant is taken
// back then if they still do not.
func (s *session) confirmed(name, id string, token uint64) {
	c := newCall().name(s.b.prefix, name, "lzmt").str("confirm").end().str(id).end().padded(token, 16).end()
	err := verdict(s.b.sure(s.b.life, s.patience, s.b.scripts.change, c, requester{}))
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.asks[id]
	if ok {
		a.confirms = false
		s.asks[id] = a
	}
	switch {
	case !ok || !a.waits || a.token != token: // it has been cancelled, or asked for
	case err != nil:
		a.push(0)
	default:
		a.push(token)
	}
}
