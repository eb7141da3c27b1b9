package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// aborting is an SQLite driver whose n-th statement fails, before or after it was executed.
type aborting struct {
	real  sqldriver.Driver
	left  atomic.Int64 // statements until one fails; negative: none fails
	after atomic.Bool
	code  atomic.Int64
	hit   atomic.Bool
}

func (a *aborting) arm(n int64, after bool, code int64) {
	a.after.Store(after)
	a.code.Store(code)
	a.hit.Store(false)
	a.left.Store(n)
}

// abortError is an error of the form that SQLite's drivers return.
type abortError int

func (e abortError) Error() string { return fmt.Sprintf("aborted by the test (%d)", int(e)) }
func (e abortError) Code() int     { return int(e) }

// around executes one statement, or fails it if it is the n-th.
func (a *aborting) around(do func() error) error {
	if a.left.Add(-1) != 0 {
		return do()
	}
	a.hit.Store(true)
	if a.after.Load() {
		if err := do(); err != nil {
			return err
		}
	}
	return abortError(a.code.Load())
}

func (a *aborting) Open(name string) (sqldriver.Conn, error) {
	c, err := a.real.Open(name)
	return abortingConn{c, a}, err
}

type abortingConn struct {
	sqldriver.Conn
	a *aborting
}

func (c abortingConn) Prepare(query string) (sqldriver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	return abortingStmt{s, c.a}, err
}

type abortingStmt struct {
	sqldriver.Stmt
	a *aborting
}

func (s abortingStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (r sqldriver.Result, err error) {
	err = s.a.around(func() (err error) {
		r, err = s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args)
		return err
	})
	return r, err
}

func (s abortingStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (r sqldriver.Rows, err error) {
	err = s.a.around(func() (err error) {
		r, err = s.Stmt.(sqldriver.StmtQueryContext).QueryContext(ctx, args)
		return err
	})
	if err != nil && r != nil {
		err = errors.Join(err, r.Close())
	}
	return r, err
}

var abort = func() *aborting {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	a := &aborting{real: db.Driver()}
	a.left.Store(-1)
	if err := db.Close(); err != nil {
		panic(err)
	}
	sql.Register("sqlite-aborting", a)
	return a
}()

// listener is a waiter whose notifications are recorded.
type listener struct {
	s    *session
	hold driver.Hold // of a place in the queue
	wake <-chan uint64
	once bool // it awaits a latch, so there is no fencing token
}

// stage is the state before an aborted step.
type stage struct {
	b         *Backend
	clock     *clock
	name      string
	s         [4]*session // the last one does not wait
	held      driver.Hold
	listeners []listener
}

func (g *stage) waits(t *testing.T, s *session, req *driver.Request) {
	g.listeners = append(g.listeners, listener{s, driver.Hold{Name: req.Name, ID: req.ID}, queued(t, s, req), false})
}

func shared(name string) *driver.Request {
	req := exclusive(name)
	req.Mode = driver.Shared
	return req
}

// steps end, move or hand over what others wait for.
var steps = map[string]struct {
	set func(t *testing.T, g *stage)
	do  func(ctx context.Context, g *stage) error
}{
	"release": {line, func(ctx context.Context, g *stage) error { return g.s[0].Release(ctx, g.held, 0) }},
	"cancel":  {line, func(ctx context.Context, g *stage) error { return g.s[0].Cancel(ctx, g.name, g.held.ID) }},
	"break":   {line, func(ctx context.Context, g *stage) error { return g.b.Break(ctx, g.name, g.held.Token) }},
	"close":   {line, func(ctx context.Context, g *stage) error { return g.b.st.removeSession(ctx, g.s[0].id) }},
	"ask": {expired, func(ctx context.Context, g *stage) error {
		_, err := g.s[3].Acquire(ctx, exclusive(g.name))
		return err
	}},
	"renew": {expired, func(ctx context.Context, g *stage) error {
		_, err := g.s[2].Renew(ctx, []driver.Hold{g.listeners[1].hold})
		return err
	}},
	"inspect":   {expired, func(ctx context.Context, g *stage) error { _, err := g.b.Inspect(ctx, g.name); return err }},
	"readers":   {readers, func(ctx context.Context, g *stage) error { return g.s[0].Release(ctx, g.held, 0) }},
	"downgrade": {readers, func(ctx context.Context, g *stage) error { return g.s[0].Downgrade(ctx, g.held) }},
	"permits": {func(t *testing.T, g *stage) {
		g.held = granted(t, g.s[0], permits(g.name, 2, 2))
		g.waits(t, g.s[1], permits(g.name, 1, 2))
		g.waits(t, g.s[2], permits(g.name, 1, 2))
	}, func(ctx context.Context, g *stage) error { return g.s[0].Release(ctx, g.held, 0) }},
	"reduce": {func(t *testing.T, g *stage) {
		g.held = granted(t, g.s[0], permits(g.name, 3, 3))
		g.waits(t, g.s[1], permits(g.name, 1, 3))
		g.waits(t, g.s[2], permits(g.name, 1, 3))
	}, func(ctx context.Context, g *stage) error { return g.s[0].Reduce(ctx, g.held, 1) }},
	"limit": {func(t *testing.T, g *stage) {
		g.held = granted(t, g.s[0], permits(g.name, 1, 1))
		g.waits(t, g.s[1], permits(g.name, 1, 1))
		g.waits(t, g.s[2], permits(g.name, 1, 1))
	}, func(ctx context.Context, g *stage) error { return g.b.SetLimit(ctx, g.name, 3) }},
	"latch": {func(t *testing.T, g *stage) {
		_, err := g.s[0].SetCount(t.Context(), g.name, 1)
		must(t, err)
		for _, s := range g.s[1:3] {
			id := newID()
			rep, err := s.Await(t.Context(), g.name, id)
			must(t, err)
			g.listeners = append(g.listeners, listener{s, driver.Hold{Name: g.name, ID: id}, rep.Wake, true})
		}
	}, func(ctx context.Context, g *stage) error { _, err := g.s[0].CountDown(ctx, g.name, "one"); return err }},
}

func line(t *testing.T, g *stage) {
	g.held = granted(t, g.s[0], exclusive(g.name))
	g.waits(t, g.s[1], exclusive(g.name))
	g.waits(t, g.s[2], exclusive(g.name))
}

// expired is line with an expired lease of the holder.
func expired(t *testing.T, g *stage) {
	line(t, g)
	g.clock.now.Add(int64(50 * time.Minute))
	for _, e := range g.listeners {
		_, err := e.s.Renew(t.Context(), []driver.Hold{e.hold})
		must(t, err)
	}
	g.clock.now.Add(int64(20 * time.Minute))
}

func readers(t *testing.T, g *stage) {
	g.held = granted(t, g.s[0], exclusive(g.name))
	g.waits(t, g.s[1], shared(g.name))
	g.waits(t, g.s[2], shared(g.name))
}

// TestSQLiteAborted fails every statement of every step, COMMIT included, before and after its
// execution. Nobody is notified of a grant that is not on record, and the step may be repeated.
func TestSQLiteAborted(t *testing.T) {
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			c := &clock{}
			c.now.Store(int64(time.Hour))
			c.wall.Store(1_700_000_000_000_000)
			b, err := Open(memoryPath(t), &Config{Driver: "sqlite-aborting", env: c.env()})
			must(t, err)
			defer func() { must(t, b.Close()) }()
			aborted := 0
			codes := []int64{codeIOErr, codeFull, codeBusy}
			rounds := testenv.Rounds(1, len(codes)) // in all rounds together each statement fails with each code
			for round := range rounds {
				for i, after := range []bool{false, true} {
					for n := 1; ; n++ {
						g := newStage(t, b, c, fmt.Sprint("x", round, after, n))
						step.set(t, g)
						hit := abortAt(t, g, step.do, int64(n), after, codes[(round+i+n)%len(codes)])
						for _, s := range g.s {
							_ = s.Close(t.Context()) // a failure affects only this name
						}
						if !hit {
							break
						}
						aborted++
					}
				}
			}
			if aborted < 8*rounds {
				t.Errorf("only %d statements aborted", aborted)
			}
		})
	}
}

func newStage(t *testing.T, b *Backend, c *clock, name string) *stage {
	t.Helper()
	g := &stage{b: b, clock: c, name: name}
	for i := range g.s {
		g.s[i] = openTestSession(t, b, time.Hour)
	}
	return g
}

// memoryPath returns a path where nothing waits for a disk, if there is one.
func memoryPath(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "sqllock")
	if err != nil {
		return storePath(t)
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "locks.db")
}

// abortAt fails the n-th statement of a step and reports whether the step has one.
func abortAt(t *testing.T, g *stage, do func(context.Context, *stage) error, n int64, after bool, code int64) bool {
	t.Helper()
	abort.arm(n, after, code)
	err := do(t.Context(), g)
	hit := abort.hit.Load()
	abort.left.Store(-1)
	if !hit {
		must(t, err)
	}
	notified := map[string]uint64{}
	listen := func() {
		t.Helper()
		for _, e := range g.listeners { // before the record is read, which ends expired leases
			select {
			case token := <-e.wake:
				notified[e.hold.ID] = token
			default:
			}
		}
		rec, err := g.b.st.inspect(t.Context(), g.name)
		must(t, err)
		for _, e := range g.listeners {
			token := notified[e.hold.ID]
			if token == 0 {
				continue
			}
			ok := e.once && rec.Kind == driver.Latch && rec.Count == 0
			for _, h := range rec.Holders {
				ok = ok || h.ID == e.hold.ID && h.Token == token
			}
			if !ok {
				t.Fatalf("statement %d failed (after its execution: %v) with %d: %s was notified of %d; on record: %+v", n, after,
					code, e.hold.ID, token, rec)
			}
		}
	}
	listen()
	checkSums(t, g.b)
	if err != nil {
		if err := do(t.Context(), g); err != nil && !isVerdict(err) && !errors.Is(err, driver.ErrClosed) {
			t.Fatalf("repeated after statement %d failed with %d: %v", n, code, err)
		}
	}
	listen()
	for _, e := range g.listeners { // a notification may be lost; the waiter must ask
		if e.once || notified[e.hold.ID] != 0 {
			continue
		}
		changes, err := e.s.Renew(t.Context(), []driver.Hold{e.hold})
		must(t, err)
		if len(changes) == 1 && changes[0].State == driver.Granted {
			notified[e.hold.ID] = changes[0].Token
		}
	}
	listen()
	if len(notified) == 0 && !g.listeners[0].once {
		t.Fatalf("statement %d failed with %d: nobody has the lock: %v", n, code, err)
	}
	checkSums(t, g.b)
	return hit
}
