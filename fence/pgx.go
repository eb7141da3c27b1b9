package fence

import (
	"context"
	"fmt"
	"time"
)

// PgxTx is the part of a pgx.Tx that BeginPgx needs. T is pgx's command tag. A pool does not fit: the
// transaction that does the work must raise the token.
type PgxTx[T interface{ RowsAffected() int64 }] interface {
	Exec(ctx context.Context, sql string, args ...any) (T, error)
	Rollback(ctx context.Context) error
}

// pgxRaise changes no row if a larger token is there. It locks the row even then.
const pgxRaise = `INSERT INTO hf_fence AS f (resource, token) VALUES ($1, $2)` +
	` ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token WHERE f.token <= EXCLUDED.token`

// rollbackLimit bounds the rollback of a refused transaction whose context may have ended.
const rollbackLimit = 5 * time.Second

// BeginPgx is Begin for a transaction of github.com/jackc/pgx/v5, in PostgreSQL. The compiler infers
// T from a pgx.Tx. Do not give it what Begin of a pgx.Tx returns: that is a savepoint only. If it is
// rolled back, which BeginPgx does too, the outer transaction can still write under a stale token.
func BeginPgx[T interface{ RowsAffected() int64 }](ctx context.Context, tx PgxTx[T], resource string,
	token uint64) error {
	err := check(PostgreSQL, resource, token)
	if err == nil {
		var done T
		done, err = tx.Exec(ctx, pgxRaise, []byte(resource), int64(token))
		switch {
		case err != nil:
			err = fmt.Errorf("fence: %q: %w", resource, wrapRetry(ctx, PostgreSQL, err))
		case done.RowsAffected() != 1:
			err = fmt.Errorf("fence: %q: %w: %d is smaller than the largest", resource, ErrStale, token)
		}
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
		defer cancel()
		_ = tx.Rollback(ctx) // fails only if it has already ended
	}
	return err
}
