package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// errNobody means that a measurement has nothing to show.
var errNobody = errors.New("no contender got the lock")

func oneScenarios() []scenario {
	waits := func(l library) bool { return l.waits }
	var out []scenario
	for _, n := range []int{2, 16, 128} {
		out = append(out, scenario{
			name: fmt.Sprintf("one/%d", n), store: "redis", columns: oneColumns,
			title: fmt.Sprintf("One name, empty critical section, %d clients with connections of their own.", n),
			subjects: withRedisson(n, n, each(waits, func(ctx context.Context, b *testbed, l library) (metrics, error) {
				return runOne(ctx, b, l, n, n, 0)
			})),
		})
	}
	for _, n := range []int{2, 128} {
		out = append(out, scenario{
			name: fmt.Sprintf("one/%d-goroutines", n), store: "redis", columns: oneColumns,
			title: fmt.Sprintf("One name, empty critical section, %d goroutines of one client.", n),
			subjects: withRedisson(1, n, each(waits, func(ctx context.Context, b *testbed, l library) (metrics, error) {
				return runOne(ctx, b, l, 1, n, 0)
			})),
		})
	}
	return append(out, scenario{
		name: "one/8x16", store: "redis", columns: oneColumns,
		title: "One name, empty critical section, 8 clients of 16 goroutines.",
		subjects: withRedisson(8, 8*16, each(waits, func(ctx context.Context, b *testbed, l library) (metrics, error) {
			return runOne(ctx, b, l, 8, 8*16, 0)
		})),
	})
}

// withRedisson adds Redisson, with threads that share the given number of clients.
func withRedisson(clients, threads int, all []subject) []subject {
	return append(all, subject{redissonName, func(ctx context.Context, b *testbed) (metrics, error) {
		return runRedisson(ctx, b, clients, threads)
	}})
}

var oneColumns = []column{
	num("persec", "acquisitions/s"), dur("p50", "hand-over p50"), dur("p99", "p99"), num("sent", "commands"),
	num("calls", "with scripts"),
	dur("waitp99", "wait p99"), dur("waitmax", "longest wait"), ratio("jain", "Jain"), pct("self", "same again"),
	dur("cpu", "client CPU"), dur("srvcpu", "server CPU"), num("violations", "violations"),
}

// idleAfter is the time after which an open client without requests is idle in all ways.
const idleAfter = 4 * time.Second

// runOne has contenders that share the given number of clients lock one name, hold it for a while,
// and unlock.
func runOne(ctx context.Context, b *testbed, l library, clients, contenders int, hold time.Duration) (metrics, error) {
	return runOneRested(ctx, b, l, clients, contenders, hold, 0)
}

// runOneRested is runOne with contenders that rest before each request, so that none takes the lock
// again at once.
func runOneRested(ctx context.Context, b *testbed, l library, clients, contenders int, hold, rest time.Duration) (
	m metrics, err error) {
	w := new(wire)
	open := make([]client, 0, clients)
	defer func() {
		var group sync.WaitGroup
		errs := make([]error, len(open))
		for i, c := range open {
			group.Go(func() { errs[i] = c.close() })
		}
		group.Wait()
		err = firstError(append([]error{err}, errs...)...)
	}()
	for range clients {
		c, err := l.open(ctx, b.site(len(open), w))
		if err != nil {
			return nil, err
		}
		open = append(open, c)
	}
	if clients > contenders {
		pause(ctx, idleAfter) // actions of new clients are not measured
	}
	r := newContest(contenders)
	r.hold, r.rest = hold, rest
	// A deadline, since redislock else uses its TTL as one.
	lctx, cancel := context.WithTimeout(ctx, 4*b.duration+time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for i := range contenders {
		// With more clients, use those in the middle: a server may serve clients in the order of
		// their connections.
		k := open[(clients/2+i)%clients].contender("one")
		group.Go(func() { r.contend(lctx, i, k) })
	}
	pause(ctx, b.duration/5)
	for !r.begun() && ctx.Err() == nil {
		pause(ctx, time.Millisecond)
	}
	sent, start := w.commands.Load(), time.Now()
	r.counting.Store(true)
	before, berr := b.read(ctx, w) // this takes as long as the reading at the end
	before.sent, before.start = sent, start
	first := r.entered.Load()
	pause(ctx, b.duration)
	for r.entered.Load() < first+2 && r.ended.Load() == 0 && lctx.Err() == nil {
		pause(lctx, time.Millisecond) // the machine has stood still: nothing has been measured
	}
	r.counting.Store(false)
	sent, start = w.commands.Load(), time.Now()
	after, aerr := b.read(ctx, w)
	after.sent, after.start = sent, start
	conns := w.open.Load()
	r.end.Store(int64(time.Since(r.base)))
	cancel()
	group.Wait()
	if err := firstError(r.failure(), berr, aerr, ctx.Err()); err != nil {
		return nil, err
	}
	m = r.metrics()
	if m["n"] == 0 {
		return nil, errNobody
	}
	before.until(after, m["n"], m)
	m["conns"] = float64(conns)
	if clients < contenders { // the order within a client is unknown
		delete(m, "overtaken")
	}
	return m, nil
}

// began is the origin of a contest's times. They are comparable, because all contenders are in this
// process.
var began = time.Now()

// contest is one name and its contenders.
type contest struct {
	base     time.Time
	hold     time.Duration // how long a contender holds it
	rest     time.Duration // before the next request
	counting atomic.Bool
	end      atomic.Int64 // when the measurement ended; 0 before

	inside     atomic.Int64 // more than one: the library is broken
	violations atomic.Int64
	entered    atomic.Int64 // acquisitions, counted or not
	ended      atomic.Int64 // participants that have ended
	releasedAt atomic.Int64 // just before the last holder called unlock
	last       atomic.Int64 // the index of the last holder
	asked      atomic.Int64 // the latest call of lock among those that have returned
	overtaken  atomic.Int64 // acquisitions overtaken by a later request

	participants []participant
}

type participant struct {
	n, self        int
	handover, wait hist
	longest        time.Duration
	err            error
}

func newContest(n int) *contest {
	r := &contest{base: began, participants: make([]participant, n)}
	r.last.Store(-1)
	return r
}

// begun reports whether there were as many acquisitions as participants, so that a long queue has
// formed, or one has failed.
func (r *contest) begun() bool {
	return r.entered.Load() >= int64(len(r.participants)) || r.ended.Load() > 0
}

// placed is a contender that knows when it joined the queue in its last lock, as a time since
// began; 0: it did not have to wait.
type placed interface{ placed() time.Duration }

// grace is the time for other contenders to join the queue: they cannot know when they have.
const grace = 2 * time.Millisecond

// order counts an overtaken acquisition: it was requested at asked and has just succeeded. A
// request made after it joined the queue was granted before it.
func (r *contest) order(k contender, asked time.Duration) {
	joined := asked + grace
	if p, ok := k.(placed); ok {
		joined = p.placed()
	}
	if joined != 0 && time.Duration(r.asked.Load()) > joined && r.counting.Load() {
		r.overtaken.Add(1)
	}
	r.asked.Store(max(r.asked.Load(), int64(asked))) // only the holder runs this
}

// contend locks and unlocks until ctx ends. A lock that cannot be cancelled gets its turn after the
// end.
func (r *contest) contend(ctx context.Context, id int, k contender) {
	defer r.ended.Add(1)
	me := &r.participants[id]
	asked := time.Since(r.base)
	for r.end.Load() == 0 {
		err := k.lock(ctx)
		if errors.Is(err, errGaveUp) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				me.err = fmt.Errorf("lock: %w", err)
			} else {
				r.cut(me, asked)
			}
			return
		}
		now := time.Since(r.base)
		if r.inside.Add(1) != 1 {
			r.violations.Add(1)
		}
		r.entered.Add(1)
		r.order(k, asked)
		last := r.last.Load()
		if r.counting.Load() {
			me.n++
			me.wait.Record(now - asked)
			me.longest = max(me.longest, now-asked)
			if last == int64(id) {
				me.self++
			} else if last >= 0 {
				me.handover.Record(now - time.Duration(r.releasedAt.Load()))
			}
		} else {
			r.cut(me, asked)
		}
		if r.hold > 0 {
			time.Sleep(r.hold)
		}
		r.last.Store(int64(id))
		r.inside.Add(-1)
		r.releasedAt.Store(int64(time.Since(r.base)))
		if err := k.unlock(); err != nil {
			me.err = fmt.Errorf("unlock: %w", err)
			return
		}
		if r.rest > 0 {
			time.Sleep(r.rest)
		}
		asked = time.Since(r.base)
	}
}

// cut counts a wait of me that went on past the end, up to the end.
func (r *contest) cut(me *participant, asked time.Duration) {
	if end := time.Duration(r.end.Load()); end > asked {
		me.longest = max(me.longest, end-asked)
	}
}

func (r *contest) failure() error {
	for i := range r.participants {
		if err := r.participants[i].err; err != nil {
			return err
		}
	}
	return nil
}

func (r *contest) metrics() metrics {
	var handover, wait hist
	var sum, squares, self float64
	longest := time.Duration(0)
	for i := range r.participants {
		k := &r.participants[i]
		handover.Merge(&k.handover)
		wait.Merge(&k.wait)
		sum += float64(k.n)
		squares += float64(k.n) * float64(k.n)
		self += float64(k.self)
		longest = max(longest, k.longest)
	}
	m := metrics{
		"n": sum, "violations": float64(r.violations.Load()), "waitmax": float64(longest),
		"waitp99": float64(wait.Quantile(0.99)), "handovers": float64(handover.N),
		"overtaken": float64(r.overtaken.Load()),
	}
	m.p50p99("", &handover)
	if sum > 0 {
		m["jain"] = sum * sum / (float64(len(r.participants)) * squares)
		m["self"] = 100 * self / sum
	}
	return m
}
