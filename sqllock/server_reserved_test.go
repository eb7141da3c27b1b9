package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// vanishing has a server for its first connection alone.
type vanishing struct{ nowhere }

func (vanishing) Reserved() Reserved { return Reserved{} }

func (v vanishing) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if conn, err := v.nowhere.Connect(ctx); v.asked.Load() > 1 {
		return conn, err
	}
	return idleConn{}, nil
}

type idleConn struct{ sqldriver.Conn }

func (idleConn) Close() error { return nil }

// A statement that may have been executed stays uncertain when its repetition finds no server.
func TestReservedStaysUncertain(t *testing.T) {
	for _, c := range []struct{ first, want error }{
		{fmt.Errorf("%w: %w", driver.ErrUncertain, sqldriver.ErrBadConn), driver.ErrUncertain},
		{fmt.Errorf("%w: %w", driver.ErrUnavailable, sqldriver.ErrBadConn), driver.ErrUnavailable},
	} {
		v := vanishing{nowhere{asked: &atomic.Int64{}}}
		db := sql.OpenDB(v)
		k := newReservedConn(db, v)
		k.later = func(f func()) { f() }
		err := k.use(t.Context(), working, func(context.Context, sqlConn) error { return c.first })
		if !errors.Is(err, c.want) || errors.Is(err, driver.ErrUncertain) && errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, then no server: %v", c.first, err)
		}
		if v.asked.Load() < 2 {
			t.Error("it was not repeated")
		}
		k.close()
		_ = db.Close()
	}
}
