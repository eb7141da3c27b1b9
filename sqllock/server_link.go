package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// direct runs each statement by itself.
type direct struct {
	l link
	d Dialect
	p *prepared // of the pool; nil: l is the connection that is kept
}

// form is a statement as it is sent, with no arguments that the driver would send by themselves.
func (q direct) form(ctx context.Context, text string, args []any) (string, []any) {
	text, args = q.d.Inline(text, args)
	if q.p != nil {
		text = q.d.Bounded(text, brief(ctx))
	}
	return text, args
}

// Often implements [Querier].
func (q direct) Often() Querier {
	if q.p == nil {
		return q
	}
	return often{q, q.p}
}

// Exec implements [Querier].
func (q direct) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	text, args = q.form(ctx, text, args)
	return q.l.exec(ctx, text, args)
}

// Query implements [Querier].
func (q direct) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.form(ctx, text, args)
	return q.l.query(ctx, text, args)
}

// keptConn is one connection of the pool that the application cannot take, for what must not
// wait: renewals first, and wake-ups, and what is asked when the pool is exhausted.
type keptConn struct {
	db    *sql.DB
	d     Dialect
	turn  chan struct{} // holds a value while nobody uses it
	after chan struct{} // the same, of all but renewals: one of them at most is in a renewal's way
	conn  *sql.Conn
	shut  bool
	limit string // the statement that says how long those who use it wait for a row

	opened time.Time // when conn was connected, at the latest

	later func(f func()) // runs f beside
}

// purpose is what the connection that is kept is used for.
type purpose int

const (
	renewing purpose = iota
	hurrying         // a renewal that has no time to wait for a row
	passing          // a renewal that has waited for a row, and does not for another
	waking           // which waits for no row
	reading          // the same, for callers who may give up
	working          // which must not wait for a row for long, since renewals wait for it
)

func newKeptConn(db *sql.DB, d Dialect) *keptConn {
	k := &keptConn{db: db, d: d, turn: make(chan struct{}, 1), after: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	k.after <- struct{}{}
	return k
}

// use runs f on the connection, one at a time. A connection that has broken meanwhile, or is silent for a third of the
// time that is left, and for longer than f may wait for a row, is replaced, and f runs once more: so f may be repeated,
// also if its first run was not heard.
func (k *keptConn) use(ctx context.Context, why purpose, f func(ctx context.Context, l link) error) error {
	if why != renewing && why != passing {
		if err := take(ctx, k.after); err != nil {
			return err
		}
		defer func() { k.after <- struct{}{} }()
	}
	if err := take(ctx, k.turn); err != nil {
		return err
	}
	defer func() { k.turn <- struct{}{} }()
	if k.shut {
		return fmt.Errorf("backend: %w", driver.ErrClosed)
	}
	limit := firstTry(ctx)
	switch why {
	case renewing, passing:
		// A statement that waits for a row must be answered before it is given up: the connection would be lost with it.
		const heard, least = RowWait * 6 / 5, 100 * time.Millisecond
		switch end, limited := ctx.Deadline(); {
		case !limited || time.Until(end) >= heard:
			limit = max(limit, heard)
		case time.Until(end) < least:
			return errAgain
		default:
			why = hurrying
		}
	case reading, working:
		// The connection must not be lost because a caller has no more time: there may be no other.
		late, cancel := afterwards(ctx, 250*time.Millisecond)
		defer cancel()
		ctx = late
	}
	err, again := k.try(ctx, limit, why, f)
	if again && ctx.Err() == nil {
		if why == renewing {
			why = hurrying
		}
		err, _ = k.try(ctx, 0, why, f)
	}
	return err
}

func take(ctx context.Context, turn chan struct{}) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// afterwards returns a context that ends a while after ctx.
func afterwards(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(while, cancel) })
	return late, func() { stop(); cancel() }
}

// firstTry is how long the first of two attempts may take; 0: there is no time for two.
func firstTry(ctx context.Context) time.Duration {
	const least, most = 250 * time.Millisecond, 2 * time.Second
	end, limited := ctx.Deadline()
	if !limited {
		return most
	}
	if third := time.Until(end) / 3; third >= least {
		return min(third, most)
	}
	return 0
}

// try is one attempt, and reports whether another connection may do better. If nothing was heard, those that are idle
// are as old as this one, and may be as dead.
func (k *keptConn) try(ctx context.Context, limit time.Duration, why purpose, f func(ctx context.Context, l link) error) (err error, again bool) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err = k.connect(ctx, why); err == nil {
		err = f(ctx, way{k.conn})
	}
	broken := errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
	silent := err != nil && ctx.Err() != nil
	if broken || err != nil && !answered(err) {
		k.drop()
	}
	switch {
	case silent && limit > 0:
		dropSilent(k.db)
	case silent: // there is no time for another attempt
		k.later(func() { dropSilent(k.db) })
	}
	return err, broken || silent
}

// connect has the connection ready, and takes one of the pool, which may give one that is broken, if there is none.
func (k *keptConn) connect(ctx context.Context, why purpose) error {
	texts := k.d.Kept()
	limit := k.limit
	switch {
	case why == working, why == passing:
		limit = texts.Working
	case why == hurrying && texts.Hurrying != nil:
		end, _ := ctx.Deadline()
		limit = texts.Hurrying(time.Until(end) / 16) // there may be several to wait for
	case why == renewing || k.conn == nil:
		limit = texts.Renewing
	}
	if k.conn != nil {
		if limit == k.limit {
			return nil
		}
		return k.set(ctx, limit)
	}
	conn, err := k.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	k.conn, k.limit = conn, ""
	err = conn.PingContext(ctx)
	if err == nil && texts.Begin != "" {
		_, err = conn.ExecContext(ctx, texts.Begin)
	}
	if err == nil && limit != "" {
		err = k.set(ctx, limit)
	}
	if err != nil {
		k.drop()
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	k.opened = time.Now()
	return nil
}

// set sets how long statements wait for a row from now on.
func (k *keptConn) set(ctx context.Context, limit string) error {
	if _, err := k.conn.ExecContext(ctx, limit); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	k.limit = limit
	return nil
}

// dropSilent closes the pool's idle connections that do not answer. A network that has forgotten one of them has
// forgotten the others, too, and says so of none.
func dropSilent(db *sql.DB) {
	const patience = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all sync.WaitGroup
	for range min(db.Stats().Idle, 256) {
		all.Go(func() {
			conn, err := db.Conn(ctx)
			if err != nil {
				return
			}
			if conn.PingContext(ctx) != nil {
				forget(conn)
			} else {
				_ = conn.Close()
			}
		})
	}
	all.Wait()
}

// answered reports whether an error is the server's answer, so that its connection is good.
func answered(err error) bool {
	return stands(err) || errors.Is(err, errAgain) || errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrDamaged)
}

// drop ends the connection: no other may get it, since it was prepared for what is done here.
func (k *keptConn) drop() {
	if k.conn != nil {
		forget(k.conn)
		k.conn = nil
	}
}

// forget closes a connection, and has its pool forget it.
func forget(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// close ends the connection, when nobody uses it.
func (k *keptConn) close() {
	<-k.turn
	k.shut = true
	k.drop()
	k.turn <- struct{}{}
}
