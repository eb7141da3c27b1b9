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
	l sqlConn
	d Dialect
	p *prepared // of the pool; nil: l is the reserved connection
}

// form returns a statement as it is sent, without arguments that the driver would send separately.
func (q direct) form(ctx context.Context, text string, args []any) (string, []any) {
	text, args = q.d.Inline(text, args)
	if q.p != nil {
		text = q.d.Bounded(text, brief(ctx))
	}
	return text, args
}

func (q direct) Prepared() Querier {
	if q.p == nil {
		return q
	}
	return preparedQuerier{q, q.p}
}

func (q direct) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	text, args = q.form(ctx, text, args)
	return q.l.exec(ctx, text, args)
}

func (q direct) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.form(ctx, text, args)
	return q.l.query(ctx, text, args)
}

// reservedConn is one connection of the pool that the application cannot take, for work that must
// not wait: renewals first, then wake-ups, and calls while the pool is exhausted.
type reservedConn struct {
	db    *sql.DB
	d     Dialect
	turn  chan struct{} // holds a value while the connection is free
	after chan struct{} // the same for all but renewals: at most one of them is ahead of a renewal
	conn  *sql.Conn
	shut  bool
	limit string // statement that set how long statements wait for a row

	opened time.Time // conn was connected then or earlier

	later func(f func()) // runs f in the background
}

// purpose is what the reserved connection is used for.
type purpose int

const (
	renewing purpose = iota
	hurrying         // a renewal that has no time to wait for a row
	passing          // a renewal that has waited for a row, and must not wait for another
	waking           // waits for no row
	reading          // waits for no row, and its caller may give up
	working          // must not wait long for a row, since renewals wait for it
)

func newReservedConn(db *sql.DB, d Dialect) *reservedConn {
	k := &reservedConn{db: db, d: d, turn: make(chan struct{}, 1), after: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	k.after <- struct{}{}
	return k
}

// use runs f on the connection, one call at a time. It replaces a connection that has broken, or is
// silent for a third of the remaining time and longer than f may wait for a row. Then f runs a
// second time, even if the server may have executed the first.
func (k *reservedConn) use(ctx context.Context, why purpose, f func(ctx context.Context, l sqlConn) error) error {
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
		// Wait for the answer of a statement that waits for a row: giving up would lose the
		// connection.
		const answerTime, least = RowWait * 6 / 5, 100 * time.Millisecond
		switch end, limited := ctx.Deadline(); {
		case !limited || time.Until(end) >= answerTime:
			limit = max(limit, answerTime)
		case time.Until(end) < least:
			return errAgain
		default:
			why = hurrying
		}
	case reading, working:
		// Do not lose the connection because a caller gives up: there may be no other.
		late, cancel := afterwards(ctx, 250*time.Millisecond)
		defer cancel()
		ctx = late
	}
	err, again := k.try(ctx, limit, why, f)
	if again && ctx.Err() == nil {
		if why == renewing {
			why = hurrying
		}
		first := err
		if err, _ = k.try(ctx, 0, why, f); errors.Is(first, driver.ErrUncertain) && undone(err) {
			err = fmt.Errorf("%w: one attempt was not answered, and the next failed: %v", driver.ErrUncertain, err)
		}
	}
	return err
}

// undone reports whether err means that its attempt did nothing, and that none follows.
func undone(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, errAgain)
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

// firstTry returns the limit for the first of two attempts; 0: there is no time for two.
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

// try is one attempt. It reports whether another connection may do better. If this connection is
// silent, idle ones may be dead too.
func (k *reservedConn) try(ctx context.Context, limit time.Duration, why purpose,
	f func(ctx context.Context, l sqlConn) error) (err error, again bool) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err = k.connect(ctx, why); err == nil {
		err = f(ctx, executor{k.conn})
	}
	broken := errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
	silent := err != nil && ctx.Err() != nil
	if broken || err != nil && !answered(err) {
		k.drop()
	}
	switch {
	case silent && limit > 0:
		dropSilent(k.db)
	case silent: // no time for another attempt
		k.later(func() { dropSilent(k.db) })
	}
	return err, broken || silent
}

// connect prepares the connection. If there is none, it takes one from the pool, which may be
// broken.
func (k *reservedConn) connect(ctx context.Context, why purpose) error {
	texts := k.d.Reserved()
	limit := k.limit
	switch {
	case why == working, why == passing:
		limit = texts.Working
	case why == hurrying && texts.Hurrying != nil:
		end, _ := ctx.Deadline()
		limit = texts.Hurrying(time.Until(end) / 16) // f may wait for several rows
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

// set sets how long later statements wait for a row.
func (k *reservedConn) set(ctx context.Context, limit string) error {
	if _, err := k.conn.ExecContext(ctx, limit); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	k.limit = limit
	return nil
}

// dropSilent closes the pool's idle connections that do not answer. A network that silently dropped
// one connection has probably dropped others.
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

// answered reports whether err is the server's answer, so that its connection works.
func answered(err error) bool {
	return stands(err) || errors.Is(err, errAgain) || errors.Is(err, driver.ErrRefused) ||
		errors.Is(err, driver.ErrDamaged)
}

// drop ends the connection. Nobody else may get it, because its settings have changed.
func (k *reservedConn) drop() {
	if k.conn != nil {
		forget(k.conn)
		k.conn = nil
	}
}

// forget closes a connection and makes its pool drop it.
func forget(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// close ends the connection once it is free.
func (k *reservedConn) close() {
	<-k.turn
	k.shut = true
	k.drop()
	k.turn <- struct{}{}
}
