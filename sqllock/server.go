package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// MaxLine bounds the text about those who hold a name and wait for it, in bytes: an item has
// about 100, and its info. A server that takes shorter statements only has a lower bound.
const MaxLine = 4 << 20

// Config is optional: the zero value, or nil, works.
type Config struct {
	// Listen is a second way to the same PostgreSQL database, for the one connection that
	// listens: direct, where New's pool goes through a pooler that shares connections.
	Listen *sql.DB
}

// Server is a lock table in a database of a server: MySQL, MariaDB or PostgreSQL. Use New. It
// is safe for concurrent use.
type Server struct {
	db  *sql.DB
	d   Dialect
	cfg Config
	id  string // of this Server among all that share the tables

	pool way
	kept *keptConn

	requests, others *gate
	cancels          cancels
	working          atomic.Int64 // what runs on the pool

	prepared *prepared
	bells    *bells   // the requests of all sessions that wait
	texts    sync.Map // statements in the server's form
	floor    atomic.Int64

	began    time.Time
	answered atomic.Int64 // when the pool's connections were last heard on, in time since began
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
	reason    string // why
	open      map[*serverSession]bool
	returning map[string]bool // requests given up that are being given back; true: there was news of one meanwhile
}

var _ driver.Backend = (*Server)(nil)

// New makes a lock table of the tables that Init has made in db's database. db stays the
// caller's: it is not closed. Three connections of it are kept while sessions are open, at
// most: one to wait for news, one for renewals, one to work with, so the pool must allow
// three; whatever else is asked for at once takes more.
//
// Nothing is asked of the server before the first session or question.
func New(db *sql.DB, d Dialect, cfg *Config) *Server {
	if cfg == nil {
		cfg = &Config{}
	}
	b := &Server{
		db: db, d: d, cfg: *cfg, id: strings.ToLower(rand.Text()[:12]), pool: way{db}, bells: newBells(),
		opening: make(chan struct{}, 1), open: map[*serverSession]bool{}, returning: map[string]bool{}, began: time.Now(),
		requests: newGate(requestsAtOnce), others: newGate(othersAtOnce),
	}
	b.kept, b.prepared = newKeptConn(db, d), newPrepared(db, d)
	b.kept.later = func(f func()) { b.background(f) }
	b.opening <- struct{}{}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Name implements [driver.Backend].
func (b *Server) Name() string { return b.d.Name() }

// Polling says why waiters ask the server again and again here, instead of being woken; "" if
// they are woken, or if no session has been opened yet.
func (b *Server) Polling() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reason
}

// ready looks at the server before it is asked anything else.
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
	if n := b.db.Stats().MaxOpenConnections; n > 0 && n < minPool {
		return fmt.Errorf("%w pool: it allows %d connections; at least %d are needed (SetMaxOpenConns): "+
			"one waits for news, one is kept for renewals", driver.ErrInvalid, n, minPool)
	}
	at, err := b.d.Check(ctx, b.db)
	if err != nil {
		return b.fault(err)
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
	b.wg.Wait()
	b.kept.close()
	b.prepared.close()
	return err
}

// text is a statement in the server's form.
func (b *Server) text(statement string) string {
	if t, ok := b.texts.Load(statement); ok {
		return t.(string)
	}
	t := b.d.Text(statement)
	b.texts.Store(statement, t)
	return t
}

func (b *Server) on(l link) Querier {
	if l == link(b.pool) {
		return direct{l, b.d, b.prepared}
	}
	return direct{l, b.d, nil} // on the connection that is kept, a limit stands for all statements
}

func (b *Server) circumstances() Circumstances {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// silence is how long a server may take to answer a caller who has set no limit.
const silence = 5 * time.Second

// with runs f, which is about name, or about several if that is "", when there is room for it.
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

// read runs f, which waits for no row.
func (b *Server) read(ctx context.Context, f func(ctx context.Context, l link) error) error {
	return b.with(ctx, "", func(ctx context.Context) error { return b.runFor(ctx, reading, f) })
}

// bounded runs f with a limit of ours, if the caller has set none.
func bounded(ctx context.Context, f func(ctx context.Context) error) error {
	if _, limited := ctx.Deadline(); limited {
		return f(ctx)
	}
	own, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	err := f(own)
	if err == nil || own.Err() == nil || ctx.Err() != nil || answered(err) {
		return err
	}
	sentinel := driver.ErrUncertain
	if errors.Is(err, driver.ErrUnavailable) {
		sentinel = driver.ErrUnavailable
	}
	return fmt.Errorf("%w: no answer within %v: %v", sentinel, silence, err) // which is no error of the caller's context
}

// runner runs f on a connection.
type runner func(ctx context.Context, f func(ctx context.Context, l link) error) error

// run is the runner for all but renewals: on the pool, or on the connection that is kept, if the pool has no other left.
func (b *Server) run(ctx context.Context, f func(ctx context.Context, l link) error) error {
	return b.runFor(ctx, working, f)
}

func (b *Server) runFor(ctx context.Context, why purpose, f func(ctx context.Context, l link) error) error {
	if b.exhausted() {
		return b.kept.use(ctx, why, f)
	}
	b.working.Add(1)
	defer b.working.Add(-1)
	const rest = 10 * time.Second // idle for so long, connections may have been forgotten on the way
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

// exhausted reports whether the pool has no connection left, or none when those have theirs that are about to take one.
func (b *Server) exhausted() bool {
	const others = 2 // the one that is kept, and the one that waits for news
	s := b.db.Stats()
	return s.MaxOpenConnections > 0 && (s.InUse >= s.MaxOpenConnections || int(b.working.Load()) >= s.MaxOpenConnections-others)
}

// dropSilent has the pool forget its idle connections that are dead. It returns when that is done, unless another does
// it just now.
func (b *Server) dropSilent() {
	if b.dropping.CompareAndSwap(false, true) {
		dropSilent(b.db)
		b.dropping.Store(false)
	}
}

// fault wraps an error of the server in the sentinel that says what it means.
func (b *Server) fault(err error) error {
	if err == nil || marked(err) {
		return err
	}
	sentinel := driver.ErrUncertain
	switch b.d.Fault(err) {
	case NotDone, Unprepared:
		sentinel = driver.ErrUnavailable
	case Again:
		sentinel = errAgain
	case Refused:
		sentinel = driver.ErrRefused
	case NoSchema:
		sentinel = errNoTables
	case OutOfRange:
		sentinel = errOutOfRange
	}
	if advice := b.d.Advise(err); advice != "" {
		return fmt.Errorf("%w: %w (%s)", sentinel, err, advice)
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// errOutOfRange: nothing was done, and who reads the row learns more.
var errOutOfRange = fmt.Errorf("%w: a number is out of range", driver.ErrRefused)

// marked reports whether err has its sentinel already.
func marked(err error) bool {
	for _, s := range []error{driver.ErrUncertain, driver.ErrUnavailable, driver.ErrRefused, driver.ErrDamaged, driver.ErrInvalid, driver.ErrClosed} {
		if errors.Is(err, s) {
			return true
		}
	}
	return stands(err)
}

// ask is change for those who belong to no session.
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

// news is for those that something was granted to: here, and at other Servers.
type news struct {
	here   []Ring
	abroad []Ring
}

// add adds what a record has granted.
func (b *Server) add(n *news, r *record) {
	for _, g := range r.grants {
		server, session, _ := strings.Cut(g.Session, ".")
		ring := Ring{Name: r.name, Server: server, Session: session, ID: g.ID, Token: g.Token}
		if server == b.id {
			n.here = append(n.here, ring)
		} else {
			n.abroad = append(n.abroad, ring)
		}
	}
}

// vague is the same of who may have been granted something: all are to ask again.
func (n *news) vague() *news {
	v := &news{slices.Clone(n.here), slices.Clone(n.abroad)}
	for _, rings := range [][]Ring{v.here, v.abroad} {
		for i := range rings {
			rings[i].Token = 0
		}
	}
	return v
}

// tell wakes them.
func (b *Server) tell(n *news) {
	for _, r := range n.here {
		b.heard(r)
	}
	if len(n.abroad) > 0 {
		b.wake(n.abroad)
	}
}
