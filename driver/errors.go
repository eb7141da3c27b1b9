package driver

import (
	"context"
	"errors"
	"strings"
)

// The errors that a store tells apart. A store wraps its own cause beside them
// (fmt.Errorf with two %w), so that errors.As still reaches it.
var (
	// ErrGone: the grant, place, latch or semaphore that was named does not exist (any more).
	ErrGone = errors.New("no longer there")

	// ErrTaken: the grant that was named has ended, and another holds the lock now.
	ErrTaken = errors.New("another holds it now")

	// ErrKind: the name is in use as another kind of lock, or with another limit.
	ErrKind = errors.New("in use as another kind of lock or with another limit")

	// ErrUnavailable: the store could not be reached, or answered that it cannot serve now.
	// What was asked has not been done.
	ErrUnavailable = errors.New("store unavailable")

	// ErrUncertain: the store was asked and did not answer; it may have done it or not.
	ErrUncertain = errors.New("outcome unknown")

	// ErrRefused: the store answered that it will not: credentials, permissions,
	// read-only, a schema of another version. Asking again does not help.
	ErrRefused = errors.New("refused by the store")

	// ErrDamaged: what the store has on record for this name is not a record of a lock, or
	// cannot be read. Nothing was done. Asking again does not help until an operator has
	// removed it; the text says what was found, and where.
	ErrDamaged = errors.New("damaged record")

	// ErrInvalid: the request or configuration makes no sense; the text says what is allowed.
	ErrInvalid = errors.New("invalid")

	// ErrSpent stands beside another error of Acquire that leaves the outcome open: the request has been, or
	// is being, cancelled by the session itself. Its ID must not be used again; the caller asks with another.
	ErrSpent = errors.New("the request has ended")

	// ErrClosed: the session or backend has been closed.
	ErrClosed = errors.New("closed")
)

// IsFinal reports whether err is an answer: what was asked has not been done, and the same
// question has the same answer until somebody changes the store, its settings or the request. False for
// [IsOver], which speaks of a grant and not of the question, and for all that leaves the outcome open.
func IsFinal(err error) bool {
	return errors.Is(err, ErrKind) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrRefused) ||
		errors.Is(err, ErrDamaged) || errors.Is(err, ErrClosed)
}

// IsOver reports whether err says that the grant that was named has ended.
func IsOver(err error) bool { return errors.Is(err, ErrGone) || errors.Is(err, ErrTaken) }

// Spent returns err, as it reads, that is ErrSpent, too.
func Spent(err error) error { return spent{err} }

type spent struct{ error }

func (e spent) Is(target error) bool { return target == ErrSpent }
func (e spent) Unwrap() error        { return e.error }

// NotCallers returns an error that reads as err does, and is no context error: errors.Is says
// neither context.Canceled nor context.DeadlineExceeded, and its text speaks of no deadline. Stores
// and clients of stores have limits of their own, which end in such errors; a caller would take
// them for the end of its own context.
func NotCallers(err error) error { return notCallers{err} }

type notCallers struct{ err error }

func (e notCallers) Error() string {
	return strings.ReplaceAll(e.err.Error(), context.DeadlineExceeded.Error(), "no answer in time")
}

// Is and As stand for Unwrap.
func (e notCallers) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.err, target)
}

func (e notCallers) As(target any) bool { return errors.As(e.err, target) }
