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
	p *prepared // nil: nothing is prepared on l
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
	text, args = q.d.Inline(text, args)
	return q.l.exec(ctx, text, args)
}

// Query implements [Querier].
func (q direct) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.d.Inline(text, args)
	return q.l.query(ctx, text, args)
}

// keptConn is one connection of the pool that the application cannot take, for what must not
// wait: renewals, and releases when the pool is exhausted.
type keptConn struct {
	db   *sql.DB
	d    Dialect
	turn chan struct{} // holds a value while nobody uses it
	conn *sql.Conn
	shut bool

	opened time.Time // when conn was connected, at the latest

	later func(f func()) // runs f beside
}

func newKeptConn(db *sql.DB, d Dialect) *keptConn {
	k := &keptConn{db: db, d: d, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// use runs f on the connection, one at a time. A connection that has broken meanwhile, or is silent for a third of the
// time that is left, is replaced, and f runs once more: so f may be repeated.
func (k *keptConn) use(ctx context.Context, f func(ctx context.Context, l link) error) error {
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	if k.shut {
		return fmt.Errorf("backend: %w", driver.ErrClosed)
	}
	err, again := k.try(ctx, firstTry(ctx), f)
	if again && ctx.Err() == nil {
		err, _ = k.try(ctx, 0, f)
	}
	return err
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
func (k *keptConn) try(ctx context.Context, limit time.Duration, f func(ctx context.Context, l link) error) (err error, again bool) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err = k.connect(ctx); err == nil {
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

// connect takes a connection of the pool, which may give one that is broken.
func (k *keptConn) connect(ctx context.Context) error {
	if k.conn != nil {
		return nil
	}
	conn, err := k.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	err = conn.PingContext(ctx)
	for _, text := range k.d.Kept() {
		if err == nil {
			_, err = conn.ExecContext(ctx, text)
		}
	}
	if err != nil {
		forget(conn)
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	k.conn, k.opened = conn, time.Now()
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
