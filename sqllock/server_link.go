package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
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
	turn chan struct{} // holds a value while nobody uses it
	conn *sql.Conn
	shut bool

	opened time.Time // when conn was connected, at the latest
}

func newKeptConn(db *sql.DB) *keptConn {
	k := &keptConn{db: db, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// use runs f on the connection, one at a time. A connection that has broken meanwhile, which
// is found when nothing has been sent yet, is replaced.
func (k *keptConn) use(ctx context.Context, f func(l link) error) error {
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	if k.shut {
		return fmt.Errorf("backend: %w", driver.ErrClosed)
	}
	for try := 1; ; try++ {
		if k.conn == nil {
			conn, err := k.db.Conn(ctx)
			if err != nil {
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
			}
			if err := conn.PingContext(ctx); err != nil { // the pool may have given one that is broken
				_ = conn.Close()
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
			}
			k.conn, k.opened = conn, time.Now()
		}
		err := f(way{k.conn})
		stale := errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
		if stale || err != nil && !answered(err) {
			k.drop()
		}
		if !stale || try == 2 {
			return err
		}
	}
}

// answered reports whether an error is the server's answer, so that its connection is good.
func answered(err error) bool {
	return stands(err) || errors.Is(err, errAgain) || errors.Is(err, driver.ErrRefused)
}

func (k *keptConn) drop() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

// close gives the connection back, when nobody uses it.
func (k *keptConn) close() {
	<-k.turn
	k.shut = true
	k.drop()
	k.turn <- struct{}{}
}
