package fence_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/fence"
)

// connectPgx opens a connection of pgx itself.
func connectPgx(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), dsn)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// pgxAdd is a whole transaction of pgx that adds one to a counter; guarded or not.
func pgxAdd(ctx context.Context, conn *pgx.Conn, name string, token uint64, guarded bool) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if guarded {
		if err := fence.BeginPgx(ctx, tx, name, token); err != nil {
			if !conn.PgConn().IsClosed() && conn.PgConn().TxStatus() != 'I' {
				return errors.Join(err, errors.New("the transaction has not been rolled back"))
			}
			return err
		}
	}
	if _, err := tx.Exec(ctx, `UPDATE counter SET n = n + 1 WHERE name = $1`, name); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func TestPgx(t *testing.T) {
	s, d := postgres(t)
	ctx := testContext(t)
	for _, mode := range []string{"cache_statement", "simple_protocol", "exec"} {
		t.Run(mode, func(t *testing.T) {
			conn := connectPgx(t, s.DSN("postgres")+"&default_query_exec_mode="+mode)
			name := d.counter(t)
			for i, step := range []struct {
				token uint64
				want  error
			}{
				{5, nil}, {5, nil}, {6, nil}, {5, fence.ErrStale}, {6, nil}, {0, fence.ErrInvalid},
				{math.MaxInt64, nil}, {7, fence.ErrStale}, {math.MaxInt64 + 1, fence.ErrInvalid},
			} {
				if err := pgxAdd(ctx, conn, name, step.token, true); !errors.Is(err, step.want) {
					t.Fatalf("step %d, token %d: got %v; want %v", i, step.token, err, step.want)
				}
			}
			// The late write of a frozen holder is accepted without the guard, and refused with it. Both
			// forms of Begin know the same tokens.
			wantErr(t, pgxAdd(ctx, conn, name, 1, true), fence.ErrStale)
			wantErr(t, d.touch(ctx, name, 1), fence.ErrStale)
			must(t, pgxAdd(ctx, conn, name, 1, false))
			if n := d.value(t, name); n != 6 {
				t.Errorf("the counter is %d; want 6", n)
			}
		})
	}

	// A newer holder has begun, and has not committed: the older one waits, and is refused then.
	for _, commits := range []bool{true, false} {
		name := d.counter(t)
		newer, older := connectPgx(t, s.DSN("postgres")), connectPgx(t, s.DSN("postgres"))
		tx, err := newer.Begin(ctx)
		must(t, err)
		must(t, fence.BeginPgx(ctx, tx, name, 2))
		end := make(chan error, 1)
		go func() { end <- pgxAdd(ctx, older, name, 1, true) }()
		d.awaitWaiter(ctx, t, end)
		if commits {
			must(t, tx.Commit(ctx))
			wantErr(t, <-end, fence.ErrStale)
		} else {
			must(t, tx.Rollback(ctx))
			must(t, <-end)
		}
	}

	t.Run("retry", func(t *testing.T) {
		name := d.counter(t)
		conn := connectPgx(t, s.DSN("postgres")+"&default_transaction_isolation=serializable")
		tx, err := conn.Begin(ctx)
		must(t, err)
		_, err = tx.Exec(ctx, `SELECT 1`)
		must(t, err)
		must(t, d.touch(ctx, name, 1))
		err = fence.BeginPgx(ctx, tx, name, 2)
		wantErr(t, err, fence.ErrRetry)
		dead, cancel := context.WithCancel(ctx)
		tx, err = conn.Begin(ctx)
		must(t, err)
		cancel()
		wantErr(t, fence.BeginPgx(dead, tx, name, 2), context.Canceled)
	})
}
