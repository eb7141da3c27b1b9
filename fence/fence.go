package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/holdfast-lock/holdfast/driver"
)

// The errors to test for with errors.Is. They arrive wrapped, together with the database's own
// error.
var (
	// ErrStale: the resource has seen a larger token. Somebody else has been granted the lock
	// since. Stop: no retry under this token can succeed.
	ErrStale = errors.New("stale token")

	// ErrRetry: another transaction was in the way, and the database ended or refused this one. The
	// token is still good: run the whole transaction again, as long as the lease is valid.
	ErrRetry = driver.ErrRetry

	// ErrInvalid: the resource, token or dialect is not allowed. The text says what is allowed.
	ErrInvalid = driver.ErrInvalid
)

// Tx is the part of a transaction that Begin needs. *sql.Tx is one; a *sql.DB is not, because the
// transaction that does the work must raise the token.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Rollback() error
}

// Begin raises the token of resource to token, or fails. It must be the first statement of the
// transaction. When it has returned nil:
//
//   - Every transaction that began on resource and has committed had this token or a smaller one,
//     and its writes are visible to this one.
//   - Until this one has ended, every other Begin on resource waits, or gets ErrRetry.
//   - Once this one has committed, every Begin with a smaller token returns ErrStale. A rollback
//     leaves the token as it was. So commit even a transaction that has only read, if what it has
//     read is to be relied on later.
//
// Begin accepts an equal token, so a holder may run several transactions. Only tokens of exclusive
// grants of one lock name of one store can be compared: readers and permits hold a lock together,
// and Begin would refuse the one that came first.
//
// Any isolation level works, as long as the transaction has read nothing before. In MySQL and
// MariaDB a REPEATABLE READ transaction keeps the snapshot of its first read. A read before Begin
// makes the reads after it old, without an error (START TRANSACTION WITH CONSISTENT SNAPSHOT is
// such a read). SQLite, PostgreSQL from REPEATABLE READ on, and MariaDB with
// innodb_snapshot_isolation return ErrRetry if another transaction came between the read and Begin.
// A transaction that needs several resources calls Begin for each before anything else, in the same
// order everywhere.
//
// Roll the transaction back at the first error of a statement. MySQL, MariaDB and SQLite may have
// ended it then, for example at a deadlock, and the driver does not notice. A later statement of tx
// would be committed by itself, under no token.
//
// The resource is any UTF-8 text of 1 to 512 bytes, compared byte for byte; the token is from 1 to
// math.MaxInt64, the largest BIGINT. Begin is one statement. It is one round trip with MySQL, and
// with PostgreSQL if the driver sends a query with parameters in one.
//
// If Begin fails it has rolled tx back, so that nothing can be written by mistake. Errors:
// ErrStale; ErrRetry; ErrInvalid; ctx's, also after waiting for another transaction; and the
// database's own, wrapped. Begin keeps no state. It may be called concurrently, for one transaction
// as far as the driver allows.
func Begin(ctx context.Context, tx Tx, d Dialect, resource string, token uint64) error {
	err := check(d, resource, token)
	if err == nil {
		err = raise(ctx, tx, d, resource, token)
	}
	if err != nil {
		_ = tx.Rollback() // fails only if it has already ended
	}
	return err
}

func check(d Dialect, resource string, token uint64) error {
	if !d.known() {
		return fmt.Errorf("fence: %w dialect %d: allowed are MySQL, PostgreSQL and SQLite", ErrInvalid, d)
	}
	if err := checkToken(token); err != nil {
		return err
	}
	if err := driver.CheckName(resource); err != nil {
		return fmt.Errorf("fence: resource: %w", err)
	}
	return nil
}

func checkToken(token uint64) error {
	switch {
	case token == 0:
		return fmt.Errorf("fence: %w token 0: allowed are the tokens of grants, from 1", ErrInvalid)
	case token > math.MaxInt64:
		return fmt.Errorf("fence: %w token %d: allowed are 1 to %d", ErrInvalid, token, int64(math.MaxInt64))
	}
	return nil
}

func raise(ctx context.Context, tx Tx, d Dialect, resource string, token uint64) error {
	highest, err := upsert(ctx, tx, d, resource, int64(token))
	switch {
	case err != nil:
		return fmt.Errorf("fence: %q: %w", resource, wrapRetry(ctx, d, err))
	case highest > int64(token):
		return fmt.Errorf("fence: %q: %w: %d is smaller than %d", resource, ErrStale, token, highest)
	case highest < int64(token):
		// A proxy that drops the statement's result must not count as success.
		return fmt.Errorf("fence: %q: the database returned token %d; it must be %d or larger", resource, highest, token)
	}
	return nil
}
