package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/waiters"
	"github.com/holdfast-lock/holdfast/sqllock/internal/samehost"
)

// MaxLine bounds the text of the grants and the queue of one name, in bytes. An item has about 100
// bytes, plus its info. A server that takes only shorter statements has a lower bound.
const MaxLine = 4 << 20

// Config is optional: the zero value, or nil, works.
type Config struct {
	// Listen is a second, direct route to the same PostgreSQL database, for the one connection that
	// listens. Set it if New's pool goes through a pooler that shares connections.
	Listen *sql.DB

	// NoSockets makes waiters wake through the SQL server only. Otherwise processes of one user on
	// one host also wake each other through sockets, which is faster. Their files are in
	// /run/user/UID or the folder of temporary files.
	NoSockets bool
}

// Server is a lock table in a database of a server: MySQL, MariaDB or PostgreSQL. Use New. It
// is safe for concurrent use.
type Server struct {
	db  *sql.DB
	d   Dialect
	cfg Config
	id  string // unique among all Servers that share the tables

	pool     executor
	reserved *reservedConn

	requests, others *gate
	cancels          cancels
	working          atomic.Int64 // operations that use the pool now

	prepared *prepared
	waiters  *waiters.Table     // the waiting requests of all sessions
	socket   *samehost.Socket   // to and from other Servers on this host
	looks    atomic.Int64       // calls of lookSoon that a look must follow
	pending  map[string]Waiters // those that waited at the last call of lookAgain; only that uses it
	texts    sync.Map           // statements in the server's form
	floor    atomic.Int64

	began    time.Time
	answered atomic.Int64 // when the pool last answered, as time since began
	dropping atomic.Bool

	opening chan struct{} // holds a value while nobody opens
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu        sync.Mutex
	opened    bool
	closed    bool
	at        Circumstances
	bell      Bell   // nil: waiters poll
	reason    string // why waiters poll
	open      map[*serverSession]bool
	returning map[string]bool // abandoned requests whose grants are being given back; true: a notification came meanwhile
}

var _ driver.Backend = (*Server)(nil)

// New returns a lock table in the tables that Init has created in db's database. The caller owns
// db, and New never closes it. While sessions are open, up to three of its connections stay in use:
// one waits for notifications, one serves renewals, one does the work. So the pool must allow
// three; concurrent calls take more.
//
// New sends nothing to the server. The first session or call does.
func New(db *sql.DB, d Dialect, cfg *Config) *Server {
	if cfg == nil {
		cfg = &Config{}
	}
	b := &Server{
		db: db, d: d, cfg: *cfg, id: strings.ToLower(rand.Text()[:12]), pool: executor{db}, waiters: waiters.NewTable(),
		opening: make(chan struct{}, 1), open: map[*serverSession]bool{}, returning: map[string]bool{}, began: time.Now(),
		requests: newGate(requestsAtOnce), others: newGate(othersAtOnce),
	}
	b.reserved, b.prepared = newReservedConn(db, d), newPrepared(db, d)
	b.reserved.later = func(f func()) { b.background(f) }
	b.opening <- struct{}{}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.socket = samehost.New(samehost.Dir(), d.Name(), b.id, b.message, b.lookAgain)
	return b
}

// Name implements [driver.Backend].
func (b *Server) Name() string { return b.d.Name() }

// Kinds implements [driver.Backend]: a server keeps everything, and calls no grant back.
func (b *Server) Kinds() driver.Kinds {
	all := driver.AllKinds()
	all.CallBack = false
	return all
}

// Polling returns why waiters poll the server instead of being woken. It returns "" if they are
// woken, or if no session has been opened yet.
func (b *Server) Polling() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reason
}

// ready checks the server before the first call.
func (b *Server) ready(ctx context.Context) error {
	select {
	case <-b.opening:
		defer func() { b.opening <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	b.mu.Lock()
	opened, closed := b.opened, b.closed
	b.mu.Unlock()
	if closed {
		return fmt.Errorf("backend: %w", driver.ErrClosed)
	}
	if opened {
		return nil
	}
	if err := checkPool(b.db); err != nil {
		return err
	}
	if n := b.db.Stats().MaxOpenConnections; n > 0 && n < minPool {
		return fmt.Errorf("%w pool: it allows %d connections; at least %d are needed (SetMaxOpenConns): "+
			"one waits for notifications, one is reserved for renewals", driver.ErrInvalid, n, minPool)
	}
	at, err := b.d.Check(ctx, b.db)
	if err != nil {
		return b.reached(err)
	}
	if err := b.checkSchema(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.opened = at, true
	return nil
}

const minPool = 3

// checkPool refuses no pool: a program uses a variable that it has not set yet.
func checkPool(db *sql.DB) error {
	if db == nil {
		return fmt.Errorf("%w pool: it is nil", driver.ErrInvalid)
	}
	return nil
}

// Close implements [driver.Backend].
func (b *Server) Close() error {
	b.mu.Lock()
	bell := b.bell
	first := !b.closed
	b.closed, b.bell = true, nil
	b.mu.Unlock()
	if !first {
		return nil
	}
	b.stop()
	var err error
	if bell != nil {
		err = bell.Close()
	}
	err = errors.Join(err, b.socket.Close())
	b.wg.Wait()
	b.reserved.close()
	b.prepared.close()
	return err
}

// text returns a statement in the server's form.
func (b *Server) text(statement string) string {
	if t, ok := b.texts.Load(statement); ok {
		return t.(string)
	}
	t := b.d.Text(statement)
	b.texts.Store(statement, t)
	return t
}

func (b *Server) on(l sqlConn) Querier {
	if l == sqlConn(b.pool) {
		return direct{l, b.d, b.prepared}
	}
	return direct{l, b.d, nil} // on the reserved connection, one limit applies to all statements
}

func (b *Server) circumstances() Circumstances {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// answerLimit bounds a server's answer if the caller has set no deadline.
const answerLimit = 5 * time.Second

// with runs f when the gate admits it. f is about name, or about several names if name is "".
func (b *Server) with(ctx context.Context, name string, f func(ctx context.Context) error) error {
	return bounded(ctx, func(ctx context.Context) error {
		p, err := b.others.enter(ctx, name)
		if err != nil {
			return err
		}
		defer p.leave()
		return f(context.WithValue(ctx, passKey{}, p))
	})
}

// read runs f, which waits for no row lock.
func (b *Server) read(ctx context.Context, f func(ctx context.Context, l sqlConn) error) error {
	return b.with(ctx, "", func(ctx context.Context) error { return b.runFor(ctx, reading, f) })
}

// bounded runs f with answerLimit, if the caller has set no deadline.
func bounded(ctx context.Context, f func(ctx context.Context) error) error {
	if _, limited := ctx.Deadline(); limited {
		return f(ctx)
	}
	own, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err := f(own)
	if err == nil || own.Err() == nil || ctx.Err() != nil || answered(err) {
		return err
	}
	sentinel := driver.ErrUncertain
	if errors.Is(err, driver.ErrUnavailable) {
		sentinel = driver.ErrUnavailable
	}
	// does not wrap ctx's error: the caller's context has not ended
	return fmt.Errorf("%w: no answer within %v: %v", sentinel, answerLimit, err)
}

// runner runs f on a connection.
type runner func(ctx context.Context, f func(ctx context.Context, l sqlConn) error) error

// run is the runner for everything but renewals: on the pool, or on the reserved connection if the
// pool is exhausted.
func (b *Server) run(ctx context.Context, f func(ctx context.Context, l sqlConn) error) error {
	return b.runFor(ctx, working, f)
}

func (b *Server) runFor(ctx context.Context, why purpose, f func(ctx context.Context, l sqlConn) error) error {
	if b.exhausted() {
		return b.reserved.use(ctx, why, f)
	}
	return b.onPool(ctx, f)
}

// onPool is the runner for work that must never use the reserved connection. If the pool is
// exhausted, it waits.
func (b *Server) onPool(ctx context.Context, f func(ctx context.Context, l sqlConn) error) error {
	b.working.Add(1)
	defer b.working.Add(-1)
	const rest = 10 * time.Second // networks may drop connections that are idle for so long
	if time.Since(b.began)-time.Duration(b.answered.Load()) > rest {
		if end, limited := ctx.Deadline(); !limited || time.Until(end) > time.Second {
			b.dropSilent()
		} else {
			b.background(b.dropSilent)
		}
	}
	err := f(ctx, b.pool)
	switch {
	case err == nil:
		b.answered.Store(int64(time.Since(b.began)))
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && !answered(err):
		b.background(b.dropSilent)
	}
	return err
}

// exhausted reports whether the pool has no free connection, counting operations that are about to
// take one.
func (b *Server) exhausted() bool {
	const others = 2 // the reserved connection, and the one that waits for notifications
	s := b.db.Stats()
	return s.MaxOpenConnections > 0 && (s.InUse >= s.MaxOpenConnections ||
		int(b.working.Load()) >= s.MaxOpenConnections-others)
}

// dropSilent closes the pool's dead idle connections. It returns when that is done, or at once if
// another call is doing it.
func (b *Server) dropSilent() {
	if b.dropping.CompareAndSwap(false, true) {
		dropSilent(b.db)
		b.dropping.Store(false)
	}
}

// fault wraps a server's error in the sentinel error for its meaning.
func (b *Server) fault(err error) error { return b.faultOf(err, false) }

// faultOf is fault for a statement that creates tables, or for another.
func (b *Server) faultOf(err error, creates bool) error {
	if err == nil || marked(err) {
		return err
	}
	sentinel, fault := driver.ErrUncertain, b.d.Fault(err)
	if err.Error() == "sql: database is closed" { // database/sql does not export it
		fault = NotDone
	}
	switch fault {
	case NotDone, Unprepared:
		sentinel = driver.ErrUnavailable
	case Again:
		sentinel = errAgain
	case Refused:
		sentinel = driver.ErrRefused
	case Denied:
		sentinel = errDenied
	case NoSchema:
		sentinel = errNoTables
	case OutOfRange:
		sentinel = errOutOfRange
	}
	if advice := b.d.Advise(err, creates); advice != "" {
		return fmt.Errorf("%w: %w (%s)", sentinel, err, advice)
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// errOutOfRange: nothing was done. Reading the row gives the reason.
var errOutOfRange = fmt.Errorf("%w: a number is out of range", driver.ErrRefused)

// errDenied: the user lacks a right.
var errDenied = driver.Denied(driver.ErrRefused)

// marked reports whether err wraps a sentinel already.
func marked(err error) bool {
	for _, s := range []error{driver.ErrUncertain, driver.ErrUnavailable, driver.ErrRefused, driver.ErrDamaged,
		driver.ErrInvalid, driver.ErrClosed} {
		if errors.Is(err, s) {
			return true
		}
	}
	return stands(err)
}

// ask is change for callers without a session.
func (b *Server) ask(ctx context.Context, name string, f func(r *record) error) error {
	return b.askBy(ctx, name, b.run, f)
}

func (b *Server) askBy(ctx context.Context, name string, run runner, f func(r *record) error) error {
	if err := errors.Join(driver.CheckName(name), b.ready(ctx)); err != nil {
		return err
	}
	return b.with(ctx, name, func(ctx context.Context) error { return b.change(ctx, run, one(name, f)) })
}

func one(name string, f func(r *record) error) step {
	return step{names: []string{name}, do: func(_ int, r *record) error { return f(r) }}
}
