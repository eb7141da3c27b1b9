package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// An exchanger is a Conn whose methods return when their context ends, whatever the client does. Clients of Redis
// disregard contexts in places: while they connect again, wait for another's connection or for room in a queue, or
// read an answer. So each exchange has a goroutine of its own, which its caller leaves when the context ends. That
// is dear; without it go those that no caller has set a bound to, as long as the client answers.
//
// A request that its caller has left may still reach the server, behind the cancellation that the caller then sends
// on another connection. So a request for a lock is cancelled again when the client has come to its end with it.
type exchanger struct {
	Conn
	silent atomic.Bool // the last exchange has not been answered
	guide  guide
}

// inline reports whether an exchange needs no goroutine of its own.
func (x *exchanger) inline(ctx context.Context) bool {
	return ctx.Done() == nil || driver.IsOwnBound(ctx) && !x.silent.Load()
}

// answered notes whether err is, or there is, an answer, and returns err for the caller.
func (x *exchanger) answered(ctx context.Context, err error) error {
	if silent := unanswered(err); silent != x.silent.Load() {
		x.silent.Store(silent)
	}
	if err == nil {
		return nil
	}
	return callers(ctx, x.guide.directed(ctx, x.Conn, err))
}

// A requester is whom an exchange asks on behalf of: a request of a session. None if the session is nil.
type requester struct {
	s        *session
	name, id string
}

// left is called by the requester, when it leaves an exchange that is under way.
func (r requester) left() {
	if r.s != nil {
		r.s.flights.Add(1)
	}
}

// over is called when an exchange has ended that its requester has left. nothing says that nothing was sent.
func (r requester) over(nothing bool) {
	switch {
	case r.s == nil:
	case nothing:
		r.s.flights.Done()
	default:
		go func() {
			defer r.s.flights.Done()
			r.s.undo(r.name, r.id)
		}()
	}
}

// obey returns what f returns, or when ctx ends. It reports false then, and calls over when f has returned.
func obey[T any](ctx context.Context, f func() T, over func(T)) (result T, ok bool) {
	if ctx.Done() == nil {
		return f(), true
	}
	done := make(chan T, 1)
	var settled atomic.Bool // who comes second knows that the other was first
	go func() {
		r := f()
		if settled.CompareAndSwap(false, true) {
			done <- r
		} else if over != nil {
			over(r)
		}
	}()
	select {
	case r := <-done:
		return r, true
	case <-ctx.Done():
		if settled.CompareAndSwap(false, true) {
			return result, false
		}
		return <-done, true
	}
}

// unheard is the error of an exchange whose context ended before there was an answer.
func unheard(ctx context.Context) error {
	return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
}

// callers is err for a caller whose context is ctx. If that has ended err says so, whatever else it says. If not, err
// does not look like its end: clients of Redis have limits of their own, and contexts for them.
func callers(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	ended := ctx.Err()
	if end, ok := ctx.Deadline(); ended == nil && ok && (!time.Now().Before(end) || errors.Is(err, context.DeadlineExceeded) && time.Until(end) < early) {
		select { // the client's clock was faster; whoever called us shall see the end, too
		case <-ctx.Done():
		case <-time.After(early):
		}
		ended = context.DeadlineExceeded
	}
	if ended != nil {
		if driver.IsFinal(err) || errors.Is(err, ended) {
			return err
		}
		return fmt.Errorf("%w: %w", err, ended)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return driver.NotCallers(err)
	}
	return err
}

// early is by how much a client of Redis may see the end of a context too soon: it gives a connection its deadline, which
// expires before the context's timer if the machine was busy when it was set.
const early = 20 * time.Millisecond

// unanswered reports whether err is none of the server's.
func unanswered(err error) bool {
	return errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable)
}

// unsent reports whether err says that nothing was sent.
func unsent(err error) bool { return errors.Is(err, driver.ErrUnavailable) }

// flight is an exchange of one script. It is what obey does, without its allocations.
type flight struct {
	fly     func() // run, bound once
	conn    Conn
	ctx     context.Context
	script  *Script
	call    *call
	of      requester
	result  Result
	done    chan struct{}
	settled atomic.Bool
}

var flightPool sync.Pool

func newFlight() *flight {
	f, ok := flightPool.Get().(*flight)
	if !ok {
		f = &flight{done: make(chan struct{}, 1)}
		f.fly = f.run
	}
	return f
}

func (f *flight) run() {
	f.result.Value, f.result.Err = f.conn.Run(f.ctx, f.script, f.call.keyList(), f.call.argList())
	if f.settled.CompareAndSwap(false, true) {
		f.done <- struct{}{} // f is the caller's
		return
	}
	f.of.over(unsent(f.result.Err))
}

// exchange runs a script whose keys and arguments c holds, which has to be left alone afterwards if abandoned is true.
func (x *exchanger) exchange(ctx context.Context, s *Script, c *call, of requester) (v Value, abandoned bool, err error) {
	if x.inline(ctx) {
		v, err = x.Conn.Run(ctx, s, c.keyList(), c.argList())
		return v, false, x.answered(ctx, err)
	}
	f := newFlight()
	f.conn, f.ctx, f.script, f.call, f.of = x.Conn, ctx, s, c, of
	f.settled.Store(false)
	go f.fly()
	select {
	case <-f.done:
	case <-ctx.Done():
		of.left()
		if f.settled.CompareAndSwap(false, true) {
			x.silent.Store(true)
			return Value{}, true, unheard(ctx)
		}
		<-f.done
		of.over(true)
	}
	v, err = f.result.Value, x.answered(ctx, f.result.Err)
	f.conn, f.ctx, f.script, f.call, f.of, f.result = nil, nil, nil, nil, requester{}, Result{}
	flightPool.Put(f)
	return v, false, err
}

// RunAll is Conn.RunAll. If ctx ends calls belong to it.
func (x *exchanger) RunAll(ctx context.Context, calls []Call) []Result {
	all, ok := obey(ctx, func() []Result { return x.Conn.RunAll(ctx, calls) }, nil)
	if !ok {
		return failed(len(calls), unheard(ctx))
	}
	for i := range all {
		all[i].Err = callers(ctx, all[i].Err)
	}
	return all
}

// failed are n results of the same error.
func failed(n int, err error) []Result {
	all := make([]Result, n)
	for i := range all {
		all[i].Err = err
	}
	return all
}

// subscribed is what Subscribe returns.
type subscribed struct {
	stop func()
	err  error
}

func (r subscribed) drop() {
	if r.stop != nil {
		r.stop()
	}
}

// Subscribe is Conn.Subscribe.
func (x *exchanger) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return subscribe(ctx, x.Conn.Subscribe, channel, message, again)
}

// SubscribeShard is Conn.SubscribeShard.
func (x *exchanger) SubscribeShard(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return subscribe(ctx, x.Conn.SubscribeShard, channel, message, again)
}

func subscribe(ctx context.Context, by func(context.Context, string, func(string), func()) (func(), error),
	channel string, message func(string), again func(),
) (func(), error) {
	r, ok := obey(ctx, func() (r subscribed) {
		r.stop, r.err = by(ctx, channel, message, again)
		return r
	}, subscribed.drop)
	if !ok {
		return nil, fmt.Errorf("%w: no answer to SUBSCRIBE: %w", driver.ErrUnavailable, ctx.Err())
	}
	return r.stop, callers(ctx, r.err)
}

// An asking is an Asker that returns when its context ends.
type asking struct{ Asker }

// Ask is Asker.Ask.
func (a asking) Ask(ctx context.Context, words ...string) []Answer {
	all, ok := obey(ctx, func() []Answer { return a.Asker.Ask(ctx, words...) }, nil)
	if !ok {
		return []Answer{{Err: unheard(ctx)}}
	}
	for i := range all {
		all[i].Err = callers(ctx, all[i].Err)
	}
	return all
}
