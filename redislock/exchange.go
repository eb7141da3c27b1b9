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

// An exchanger is a Conn whose methods return when their context ends. Redis clients ignore
// contexts in places: while they reconnect, wait for a connection or for room in a queue, or read
// an answer. So each exchange has its own goroutine, which the caller leaves when the context ends.
// A goroutine is expensive. Exchanges whose caller set no bound go without it while the server
// answers.
//
// An abandoned request may still reach the server, after the cancellation that its caller then
// sends on another connection. So a request for a lock is cancelled again once the client has
// finished with it.
type exchanger struct {
	Conn
	silent atomic.Bool // the last exchange got no answer
	guide  guide
}

// inline reports whether an exchange needs no goroutine.
func (x *exchanger) inline(ctx context.Context) bool {
	return ctx.Done() == nil || driver.IsOwnBound(ctx) && !x.silent.Load()
}

// answered records whether the server answered, and returns err for the caller.
func (x *exchanger) answered(ctx context.Context, err error) error {
	if silent := unanswered(err); silent != x.silent.Load() {
		x.silent.Store(silent)
	}
	if err == nil {
		return nil
	}
	return callers(ctx, x.guide.directed(ctx, x.Conn, err))
}

// A requester is the request that an exchange is for. A nil session means none.
type requester struct {
	s        *session
	name, id string
}

// left notes that the requester leaves an exchange that is under way.
func (r requester) left() {
	if r.s != nil {
		r.s.flights.Add(1)
	}
}

// over notes that an exchange has ended after its requester left. nothing means that nothing was
// sent.
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

// obey returns what f returns. If ctx ends first, it returns false, and calls over when f has
// returned.
func obey[T any](ctx context.Context, f func() T, over func(T)) (result T, ok bool) {
	if ctx.Done() == nil {
		return f(), true
	}
	done := make(chan T, 1)
	var settled atomic.Bool // the second to set it knows that it came second
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

// noAnswer returns the error of an exchange whose context ended before the answer came.
func noAnswer(ctx context.Context) error {
	return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
}

// callers returns err for a caller with the context ctx. If ctx has ended, the error says so. If
// not, the error does not look as if it had: Redis clients have time limits and contexts of their
// own.
func callers(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	ended := ctx.Err()
	if end, ok := ctx.Deadline(); ended == nil && ok &&
		(!time.Now().Before(end) || errors.Is(err, context.DeadlineExceeded) && time.Until(end) < early) {
		select { // the client's clock was faster: let the caller see the end too
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

// early is how much too soon a Redis client may report the end of a context. It passes the deadline
// to a connection, whose timer may expire before the context's timer on a busy machine.
const early = 20 * time.Millisecond

// unanswered reports whether err did not come from the server.
func unanswered(err error) bool {
	return errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable)
}

// unsent reports whether err means that nothing was sent. A lack of confirmations may have
// ErrUnavailable as its cause, after the script was run.
func unsent(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUncertain)
}

// flight is an exchange of one script. It works as obey does, without its allocations.
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
		f.done <- struct{}{} // f belongs to the caller
		return
	}
	f.of.over(unsent(f.result.Err))
}

// exchange runs a script with the keys and arguments in c. If abandoned is true, c is still in use.
func (x *exchanger) exchange(ctx context.Context, s *Script, c *call, of requester) (
	v Value, abandoned bool, err error) {
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
			return Value{}, true, noAnswer(ctx)
		}
		<-f.done
		of.over(true)
	}
	v, err = f.result.Value, x.answered(ctx, f.result.Err)
	f.conn, f.ctx, f.script, f.call, f.of, f.result = nil, nil, nil, nil, requester{}, Result{}
	flightPool.Put(f)
	return v, false, err
}

// RunAll implements Conn.RunAll. If ctx ends, the exchange keeps calls.
func (x *exchanger) RunAll(ctx context.Context, calls []Call) []Result {
	all, ok := obey(ctx, func() []Result { return x.Conn.RunAll(ctx, calls) }, nil)
	if !ok {
		return failed(len(calls), noAnswer(ctx))
	}
	for i := range all {
		all[i].Err = callers(ctx, all[i].Err)
	}
	return all
}

// failed returns n results with the same error.
func failed(n int, err error) []Result {
	all := make([]Result, n)
	for i := range all {
		all[i].Err = err
	}
	return all
}

// subscribeResult is what Subscribe returns.
type subscribeResult struct {
	stop func()
	err  error
}

func (r subscribeResult) drop() {
	if r.stop != nil {
		r.stop()
	}
}

// Subscribe implements Conn.Subscribe.
func (x *exchanger) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return subscribe(ctx, func() (func(), error) { return x.Conn.Subscribe(ctx, channel, message, again) })
}

// SubscribeShard implements Conn.SubscribeShard.
func (x *exchanger) SubscribeShard(ctx context.Context, channel string, message func(string), again func()) (
	func(), error) {
	return subscribe(ctx, func() (func(), error) { return x.Conn.SubscribeShard(ctx, channel, message, again) })
}

// SubscribeMany implements ManySubscriber, with the methods of Conn if that does not.
func (x *exchanger) SubscribeMany(ctx context.Context, c Channel) (func(), error) {
	m, ok := x.Conn.(ManySubscriber)
	switch {
	case ok:
		return subscribe(ctx, func() (func(), error) { return m.SubscribeMany(ctx, c) })
	case c.Sharded:
		return x.SubscribeShard(ctx, c.Name, c.Message, c.Again)
	}
	return x.Subscribe(ctx, c.Name, c.Message, c.Again)
}

func subscribe(ctx context.Context, by func() (func(), error)) (func(), error) {
	r, ok := obey(ctx, func() (r subscribeResult) {
		r.stop, r.err = by()
		return r
	}, subscribeResult.drop)
	if !ok {
		return nil, fmt.Errorf("%w: no answer to SUBSCRIBE: %w", driver.ErrUnavailable, ctx.Err())
	}
	return r.stop, callers(ctx, r.err)
}

// asking is an Asker that returns when its context ends.
type asking struct{ Asker }

// AskAll implements Asker.AskAll.
func (a asking) AskAll(ctx context.Context, servers []string, commands ...[]string) []Answers {
	all, ok := obey(ctx, func() []Answers { return a.Asker.AskAll(ctx, servers, commands...) }, nil)
	if !ok {
		return []Answers{{Results: failed(len(commands), noAnswer(ctx))}}
	}
	for _, one := range all {
		for i := range one.Results {
			one.Results[i].Err = callers(ctx, one.Results[i].Err)
		}
	}
	return all
}
