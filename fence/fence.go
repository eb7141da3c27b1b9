package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/holdfast-lock/holdfast/driver"
)

// The errors to test for with errors.Is. They arrive wrapped, with the database's own cause
// beside them.
var (
	// ErrStale: the resource has seen a larger token. Somebody else has been granted the
	// lock since; stop, for no retry under this token can succeed.
	ErrStale = errors.New("stale token")

	// ErrRetry: another transaction was in the way, and the database ended or refused this
	// one. Nothing is wrong with the token: run the whole transaction again, for as long as
	// the lease is valid.
	ErrRetry = errors.New("retry the transaction")

	// ErrInvalid: the resource, token or dialect makes no sense. The text says what is allowed.
	ErrInvalid = driver.ErrInvalid
)

// Tx is what Begin needs of a transaction. *sql.Tx is one; a *sql.DB is not, because the
// token must be raised in the transaction that does the work.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Rollback() error
}

// Begin raises the token of resource to token, or refuses. It must be the first thing
// that the transaction does. When it has returned nil:
//
//   - Every transaction that began on resource and has committed had this token or a smaller
//     one, and what it wrote is visible to this one.
//   - Until this one has ended, every other Begin on resource waits, or gets ErrRetry.
//   - Once this one has committed, every Begin with a smaller token returns ErrStale. A
//     transaction that is rolled back leaves the token as it was: one that has only read
//     must be committed too if what it has read is to be relied on later.
//
// An equal token is accepted, so a holder may run several transactions. Only tokens of
// exclusive grants of one lock name of one store can be compared: readers and permits hold a
// lock together, and the one that came first would be refused.
//
// Any isolation level will do, as long as nothing has been read before. In MySQL and MariaDB
// a REPEATABLE READ transaction goes on seeing what it saw at its first read: a read before
// Begin makes those after it old, and nobody is told (START TRANSACTION WITH CONSISTENT
// SNAPSHOT is such a read). SQLite, PostgreSQL from REPEATABLE READ on, and MariaDB with
// innodb_snapshot_isolation answer ErrRetry if somebody has come between the read and Begin. A
// transaction that needs several resources calls Begin for each before all else, in the same
// order everywhere.
//
// The resource is any UTF-8 text of 1 to 512 bytes, compared byte for byte; the token is
// from 1 to math.MaxInt64, the largest BIGINT. Begin is one statement; with MySQL it is one
// round trip, with PostgreSQL if the driver makes one of a query with parameters.
//
// If Begin fails it has rolled tx back, so that nothing can be written by mistake. Errors:
// ErrStale; ErrRetry; ErrInvalid; ctx's, also after waiting for another transaction; and the
// database's own, wrapped. Begin keeps nothing and may be called concurrently, for one
// transaction as far as the driver allows.
func Begin(ctx context.Context, tx Tx, d Dialect, resource string, token uint64) error {
	err := check(d, resource, token)
	if err == nil {
		err = raise(ctx, tx, d, resource, token)
	}
	if err != nil {
		_ = tx.Rollback() // fails only if it has ended already
	}
	return err
}

func check(d Dialect, resource string, token uint64) error {
	switch {
	case !d.known():
		return fmt.Errorf("fence: %w dialect %d: allowed are MySQL, PostgreSQL and SQLite", ErrInvalid, d)
	case token == 0:
		return fmt.Errorf("fence: %w token 0: no grant has it", ErrInvalid)
	case token > math.MaxInt64:
		return fmt.Errorf("fence: %w token %d: the database can keep 1 to %d", ErrInvalid, token, math.MaxInt64)
	}
	if err := driver.CheckName(resource); err != nil {
		return fmt.Errorf("fence: resource: %w", err)
	}
	return nil
}

func raise(ctx context.Context, tx Tx, d Dialect, resource string, token uint64) error {
	highest, err := upsert(ctx, tx, d, resource, int64(token))
	switch {
	case err != nil:
		return fmt.Errorf("fence: %q: %w", resource, fault(ctx, d, err))
	case highest > int64(token):
		return fmt.Errorf("fence: %q: %w: %d is smaller than %d", resource, ErrStale, token, highest)
	case highest < int64(token):
		// A proxy that swallows what the statement returns must not pass for a yes.
		return fmt.Errorf("fence: %q: the database answered with token %d, not with %d or a larger one", resource, highest, token)
	}
	return nil
}
