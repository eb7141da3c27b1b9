package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// link is the network between one client and the server, under the lab's control. It is a
// redislock.Conn in front of the real one. So it affects the library and the algorithms in the same
// way, at exactly the intended request. The zero mode passes everything.
type link struct {
	ctx context.Context // ends with Close
	end context.CancelFunc
	wg  sync.WaitGroup // late deliveries

	mu     sync.Mutex
	conn   redislock.Conn
	mode   linkMode
	change chan struct{} // closed when mode changes
	hit    chan struct{} // gets a value when the mode has affected a request or an answer
	seen   func(keys []string)
}

type linkMode int

const (
	passing        linkMode = iota
	cut                     // requests are withheld until the link heals; messages are lost
	dead                    // requests are lost for good: the client has crashed
	losing                  // the next request is executed, and its answer is lost
	failing                 // the next request fails at once, without effect
	stalling                // the next request is withheld; later ones pass
	stalled                 // the state after that
	losingMessages          // messages are lost
	lateAnswers             // answers are withheld until the network heals; only of a relay
)

func newLink(conn redislock.Conn, seen func(keys []string)) *link {
	l := &link{conn: conn, change: make(chan struct{}), hit: make(chan struct{}, 16), seen: seen}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// set changes the mode of requests from now on.
func (l *link) set(m linkMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	close(l.change)
	l.change = make(chan struct{})
}

func (l *link) current() linkMode {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode
}

// heal ends any fault. Withheld requests arrive now.
func (l *link) heal() { l.set(passing) }

// redirect makes the link lead to another server, as after a failover. It returns the previous one.
func (l *link) redirect(to redislock.Conn) redislock.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.conn
	l.conn = to
	return old
}

func (l *link) signalHit() {
	select {
	case l.hit <- struct{}{}:
	default:
	}
}

// next returns the mode of one request. Modes for one request end with it.
func (l *link) next() (conn redislock.Conn, mode linkMode, change chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mode = l.mode
	switch mode {
	case losing, failing:
		l.mode = passing
	case stalling:
		l.mode = stalled
	case stalled:
		mode = passing
	}
	return l.conn, mode, l.change
}

// The errors that a client gets, with the sentinels of a real client's.
var (
	errSilent = fmt.Errorf("%w: no answer", driver.ErrUncertain)
	errBroken = fmt.Errorf("%w: connection reset", driver.ErrUnavailable)
)

// through sends one exchange through the link. send must not use memory of the caller.
func through[T any](ctx context.Context, l *link, send func(context.Context, redislock.Conn) T, fail func(error) T) T {
	conn, mode, change := l.next()
	switch mode {
	case passing, losingMessages:
		return send(ctx, conn)
	case failing:
		l.signalHit()
		return fail(errBroken)
	case losing:
		_ = send(ctx, conn)
		l.signalHit()
		return fail(errSilent)
	case dead:
		l.signalHit()
		select {
		case <-ctx.Done():
		case <-l.ctx.Done():
		}
		return fail(errSilent)
	}
	l.signalHit()
	// The request is on its way, however long its sender waits for the answer.
	answer := make(chan T, 1)
	l.wg.Go(func() {
		for {
			select {
			case <-change:
			case <-l.ctx.Done():
				return
			}
			l.mu.Lock()
			mode, conn, change = l.mode, l.conn, l.change
			l.mu.Unlock()
			if mode == passing {
				answer <- send(l.ctx, conn)
				return
			}
		}
	})
	select {
	case v := <-answer:
		return v
	case <-ctx.Done():
		return fail(errors.Join(errSilent, ctx.Err()))
	case <-l.ctx.Done():
		return fail(driver.ErrClosed)
	}
}

// Cluster implements redislock.Conn: the lab uses single servers.
func (l *link) Cluster() bool { return false }

type runResult struct {
	v   redislock.Value
	err error
}

// Run implements redislock.Conn.
func (l *link) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	keys, args = slices.Clone(keys), slices.Clone(args)
	l.seen(keys)
	r := through(ctx, l, func(ctx context.Context, c redislock.Conn) runResult {
		v, err := c.Run(ctx, s, keys, args)
		return runResult{v, err}
	}, func(err error) runResult { return runResult{err: err} })
	return r.v, r.err
}

func (l *link) keep(calls []redislock.Call) []redislock.Call {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].Keys, calls[i].Args = slices.Clone(calls[i].Keys), slices.Clone(calls[i].Args)
		l.seen(calls[i].Keys)
	}
	return calls
}

func failAll(n int, err error) []redislock.Result {
	all := make([]redislock.Result, n)
	for i := range all {
		all[i].Err = err
	}
	return all
}

// RunAll implements redislock.Conn.
func (l *link) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	calls = l.keep(calls)
	return through(ctx, l, func(ctx context.Context, c redislock.Conn) []redislock.Result { return c.RunAll(ctx, calls) },
		func(err error) []redislock.Result { return failAll(len(calls), err) })
}

type waitResult struct {
	results []redislock.Result
	acked   int
	err     error
}

// RunWait implements redislock.Conn.
func (l *link) RunWait(ctx context.Context, calls []redislock.Call, replicas int, timeout time.Duration) (
	[]redislock.Result, int, error) {
	calls = l.keep(calls)
	r := through(ctx, l, func(ctx context.Context, c redislock.Conn) waitResult {
		results, acked, err := c.RunWait(ctx, calls, replicas, timeout)
		return waitResult{results, acked, err}
	}, func(err error) waitResult { return waitResult{failAll(len(calls), err), 0, err} })
	return r.results, r.acked, r.err
}

// Subscribe implements redislock.Conn. Messages are lost while the link is cut or loses messages.
func (l *link) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	return conn.Subscribe(ctx, channel, func(payload string) {
		l.mu.Lock()
		mode := l.mode
		l.mu.Unlock()
		switch mode {
		case passing, losing, failing, stalling, stalled:
			message(payload)
		default:
			l.signalHit()
		}
	}, again)
}

// SubscribeShard implements redislock.Conn: the lab has no Cluster.
func (l *link) SubscribeShard(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return l.Subscribe(ctx, channel, message, again)
}

// ask sends one command.
func (l *link) ask(ctx context.Context, words ...string) (redislock.Value, error) {
	r := through(ctx, l, func(ctx context.Context, c redislock.Conn) runResult {
		v, err := askConn(ctx, c, words...)
		return runResult{v, err}
	}, func(err error) runResult { return runResult{err: err} })
	return r.v, r.err
}

func askConn(ctx context.Context, c redislock.Conn, words ...string) (redislock.Value, error) {
	all := redislock.Ask(ctx, c.(redislock.Asker), words...)
	if len(all) != 1 {
		return redislock.Value{}, fmt.Errorf("%w: %d servers answered", driver.ErrRefused, len(all))
	}
	return all[0].Value, all[0].Err
}

// Close loses requests that are still on their way, and closes the connection.
func (l *link) Close() error {
	l.end()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn.Close()
}
