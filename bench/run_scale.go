package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/sqllock/sqlite"
)

// The cost of a grant when a name has many waiters or holders. The requests use the driver's
// contract, many through each of a few sessions.

const (
	// No lease expires during a measurement; renewal is measured separately.
	scaleTTL      = time.Hour
	scaleSessions = 4
	shortQueue    = 10 // behind a semaphore
)

// scaleStore is a store to measure, and its columns.
type scaleStore struct {
	name, store, suffix string
	columns             []column
	open                func(b *testbed, dir string, w *wire) (driver.Backend, error)
}

func scaleStores() []scaleStore {
	local := []column{dur("cpu", "client CPU"), dur("p50", "hand-over p50"), dur("p99", "p99"),
		dur("renewcpu", "client CPU per renewal")}
	return []scaleStore{
		{ours, "redis", "", []column{
			dur("scripts", "server time in scripts"), dur("srvcpu", "server CPU"), num("sent", "commands"),
			num("calls", "with scripts"),
			dur("p50", "hand-over p50"), dur("p99", "p99"), dur("renewscripts", "server time per renewal"),
			num("renewcalls", "commands per renewal"),
		}, func(b *testbed, _ string, w *wire) (driver.Backend, error) {
			return rueidisBackend(site{addr: b.server.addr, wire: w})
		}},
		{oursSQLite, "sqlite", "-sqlite", local, func(_ *testbed, dir string, _ *wire) (driver.Backend, error) {
			return sqlite.Open(filepath.Join(dir, "locks.db"), nil)
		}},
		{"holdfast-memory", "any", "-memory", local, func(*testbed, string, *wire) (driver.Backend, error) {
			return memlock.New(), nil
		}},
	}
}

func scaleScenarios() []scenario {
	var out []scenario
	add := func(st scaleStore, name, title string, columns []column, sizes []int,
		run func(context.Context, *testbed, *storeSessions, int) (metrics, error)) {
		sc := scenario{name: "scale/" + name + st.suffix, title: title, store: st.store, columns: columns}
		for _, n := range sizes {
			sc.subjects = append(sc.subjects, subject{fmt.Sprintf("%s/%d", st.name, n),
				func(ctx context.Context, b *testbed) (metrics, error) {
					if st.store != "redis" { // the server has no counters
						b = &testbed{dir: b.dir, duration: b.duration}
					}
					return onStore(ctx, b, st, func(t *storeSessions) (metrics, error) { return run(ctx, b, t, n) })
				}})
		}
		out = append(out, sc)
	}
	for _, st := range scaleStores() {
		add(st, "line",
			"A mutex with so many waiters (the number in the first column): release, hand-over to the first, a new waiter joins at the end; after that all are renewed.",
			st.columns, []int{10, 100, 1000, 5000}, func(ctx context.Context, b *testbed, t *storeSessions, n int) (metrics,
				error) {
				return runQueue(ctx, b, t, driver.Request{Mode: driver.Exclusive, N: 1, Wait: true}, 1, n)
			})
		add(st, "permits", fmt.Sprintf("A semaphore of so many permits, each held by another request, %d waiters: the same.",
			shortQueue),
			st.columns, []int{10, 100, 1000, 10_000}, func(ctx context.Context, b *testbed, t *storeSessions, n int) (metrics,
				error) {
				return runQueue(ctx, b, t, driver.Request{Mode: driver.Permits, N: 1, Limit: n, Wait: true}, n, shortQueue)
			})
		if st.store != "any" {
			add(st, "readers",
				fmt.Sprintf("So many readers, each holding for %v times their number, and a writer every so often.", readerShare),
				readersColumns(st.store), []int{10, 100, 1000}, runReaders)
		}
	}
	return out
}

// table is a store with sessions, with counts.
type storeSessions struct {
	sessions []driver.Session
	w        *wire
	prefix   string // of request IDs
	n        int    // requests so far
}

// onTable runs f on an empty store.
func onStore(ctx context.Context, b *testbed, st scaleStore, f func(*storeSessions) (metrics, error)) (
	m metrics, err error) {
	dir, err := os.MkdirTemp(b.dir, "scale-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t := &storeSessions{w: new(wire), prefix: strings.ToLower(rand.Text())}
	backend, err := st.open(b, dir, t.w)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range t.sessions {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
		err = errors.Join(err, backend.Close())
	}()
	for i := range scaleSessions {
		s, err := backend.Open(ctx, driver.SessionConfig{ID: fmt.Sprintf("%s%d", t.prefix, i), TTL: scaleTTL,
			Info: scaleInfo})
		if err != nil {
			return nil, err
		}
		t.sessions = append(t.sessions, s)
	}
	return f(t)
}

var scaleInfo = driver.Info{Host: "bench.example", PID: 1, User: "bench", Program: "bench"}.String()

// A claim is a request and its outcome.
type claim struct {
	s     driver.Session
	id    string
	token uint64
	wake  <-chan uint64
}

// next returns a new request; the sessions take turns.
func (t *storeSessions) next() claim {
	t.n++
	return claim{s: t.sessions[t.n%len(t.sessions)], id: fmt.Sprintf("%s-%d", t.prefix, t.n)}
}

// ask sends r once.
func (c *claim) ask(ctx context.Context, r driver.Request) error {
	r.ID, r.Name, r.Info = c.id, "one", scaleInfo
	reply, err := c.s.Acquire(ctx, &r)
	c.token, c.wake = reply.Token, reply.Wake
	return err
}

func (c *claim) hold() driver.Hold { return driver.Hold{Name: "one", ID: c.id, Token: c.token} }

// queue is a name with a constant number of holders and waiters. The oldest holder releases, the
// first waiter gets the lock, and a new waiter joins.
type queue struct {
	t             *storeSessions
	like          driver.Request
	held, waiters []claim // in order
	last          uint64  // token
	violations    float64
	handover      hist
}

func (q *queue) fill(ctx context.Context, held, waiting int) error {
	for i := range held + waiting {
		c := q.t.next()
		switch err := c.ask(ctx, q.like); {
		case err != nil:
			return err
		case (c.token != 0) != (i < held):
			return fmt.Errorf("request %d of %d + %d: token %d", i+1, held, waiting, c.token)
		case i < held:
			q.granted(&c)
		default:
			q.waiters = append(q.waiters, c)
		}
	}
	return nil
}

func (q *queue) granted(c *claim) {
	if c.token <= q.last {
		q.violations++
	}
	q.last = c.token
	q.held = append(q.held, *c)
}

var errPassedOver = errors.New("the first waiter did not get the released lock")

func (q *queue) step(ctx context.Context) error {
	oldest, first := q.held[0], q.waiters[0]
	q.held, q.waiters = q.held[1:], q.waiters[1:]
	start := time.Now()
	if err := oldest.s.Release(ctx, oldest.hold(), 0); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	patience := time.NewTimer(5 * time.Second)
	defer patience.Stop()
	select {
	case first.token = <-first.wake:
	case <-patience.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if first.token == 0 {
		return errPassedOver
	}
	q.handover.Record(time.Since(start))
	q.granted(&first)
	c := q.t.next()
	err := c.ask(ctx, q.like)
	if err == nil && c.token != 0 {
		q.violations++ // the queue was not empty
	}
	q.waiters = append(q.waiters, c)
	return err
}

// renew renews everything, in one exchange per session.
func (q *queue) renew(ctx context.Context) error {
	for _, s := range q.t.sessions {
		var holds []driver.Hold
		for _, side := range [][]claim{q.held, q.waiters} {
			for i := range side {
				if side[i].s == s {
					holds = append(holds, side[i].hold())
				}
			}
		}
		changes, err := s.Renew(ctx, holds)
		if err != nil {
			return err
		}
		for _, ch := range changes {
			if ch.State != driver.Waiting || holds[ch.Index].Token != 0 {
				return fmt.Errorf("renewal: %+v", ch)
			}
		}
	}
	return nil
}

// renewals is how many renewals of everything are measured.
const renewals = 5

func runQueue(ctx context.Context, b *testbed, t *storeSessions, like driver.Request, held, waiting int) (
	metrics, error) {
	q := &queue{t: t, like: like}
	if err := q.fill(ctx, held, waiting); err != nil {
		return nil, err
	}
	steps := func(d time.Duration) (n float64, err error) {
		for start := time.Now(); err == nil && time.Since(start) < d; n++ {
			err = q.step(ctx)
		}
		return n, err
	}
	if _, err := steps(b.duration / 5); err != nil {
		return nil, err
	}
	q.handover = hist{}
	before, err := b.read(ctx, t.w)
	if err != nil {
		return nil, err
	}
	n, err := steps(b.duration)
	if err != nil {
		return nil, err
	}
	after, err := b.read(ctx, t.w)
	if err != nil {
		return nil, err
	}
	for range renewals {
		if err := q.renew(ctx); err != nil {
			return nil, err
		}
	}
	renewed, err := b.read(ctx, t.w)
	if err != nil {
		return nil, err
	}
	m, again := metrics{"n": n, "violations": q.violations}, metrics{}
	m.p50p99("", &q.handover)
	before.until(after, n, m)
	after.until(renewed, float64(renewals*(held+waiting)), again)
	m["renewcpu"], m["renewscripts"], m["renewcalls"] = again["cpu"], again["scripts"], again["calls"]
	return m, nil
}
