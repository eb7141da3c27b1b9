package fence

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Retryable reports whether err means that another transaction was in the way, and that the whole
// transaction should run again. This is so for ErrRetry, and for the database's errors of this kind
// from the transaction's other statements and from Commit. Those of Commit are usual in
// PostgreSQL's SERIALIZABLE and in clusters with several writing nodes. It is false for the error
// of a context that has ended.
//
// These errors are PostgreSQL's 40001, 40P01 and 55P03, by the method SQLState() string of the
// driver's error; MySQL's 1020, 1205 and 1213, by the text "Error NUMBER" at the start of the
// driver's error; and all kinds of SQLite's BUSY and LOCKED, by the method Code() int, or by
// SQLite's own text where the driver has no such method.
func Retryable(d Dialect, err error) bool {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, ErrRetry):
		return true
	}
	switch d {
	case PostgreSQL:
		var state interface{ SQLState() string } // pgx and pq have it
		return errors.As(err, &state) && slices.Contains(postgresRetry, state.SQLState())
	case MySQL:
		return anyIn(err, func(text string) bool {
			number := mysqlError.FindStringSubmatch(text)
			return number != nil && slices.Contains(mysqlRetry, number[1])
		})
	case SQLite:
		var code interface{ Code() int } // modernc.org/sqlite has it
		if errors.As(err, &code) {
			primary := code.Code() & 0xff // the other bits are the kind
			return primary == sqliteBusy || primary == sqliteLocked
		}
		return anyIn(err, sqliteError.MatchString)
	}
	return false
}

var (
	postgresRetry = []string{
		"40001", // serialization_failure
		"40P01", // deadlock_detected
		"55P03", // lock_not_available: lock_timeout has passed
	}
	mysqlRetry = []string{
		"1020", // ER_CHECKREAD: MariaDB's innodb_snapshot_isolation
		"1205", // ER_LOCK_WAIT_TIMEOUT
		"1213", // ER_LOCK_DEADLOCK
	}
)

const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

// The texts are matched only from the beginning: the rest may contain text of a user, such as the
// name of a resource. The server translates the text after MySQL's number; SQLite translates
// nothing.
var (
	mysqlError  = regexp.MustCompile(`^(?i:error) (\d+)\b`)
	sqliteError = regexp.MustCompile(`^(sqlite3: )?database (table |schema )?is locked`)
)

// anyIn reports whether wanted is true for the text of err, or of any error that it wraps.
func anyIn(err error, wanted func(text string) bool) bool {
	if wanted(err.Error()) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		inner := e.Unwrap()
		return inner != nil && anyIn(inner, wanted)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(inner error) bool { return anyIn(inner, wanted) })
	}
	return false
}

// wrapRetry wraps a database's error so that the caller can see what to do.
func wrapRetry(ctx context.Context, d Dialect, err error) error {
	switch ended := ctx.Err(); {
	case ended != nil && errors.Is(err, ended):
		return err
	case ended != nil: // a driver may report how it stopped instead of why
		return fmt.Errorf("%w: %w", ended, err)
	case Retryable(d, err):
		return fmt.Errorf("%w: %w", ErrRetry, err)
	}
	return err
}
