package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// The errors that a store distinguishes. A store also wraps its own cause (fmt.Errorf with two %w),
// so that errors.As can reach it.
var (
	// ErrGone: the named grant, place, latch or semaphore does not exist, or no longer does.
	ErrGone = errors.New("no longer there")

	// ErrTaken: the named grant has ended, and another holds the lock now.
	ErrTaken = errors.New("another holds it now")

	// ErrKind: the name is in use as another kind of lock, or with another limit.
	ErrKind = errors.New("in use as another kind of lock or with another limit")

	// ErrUnavailable: the store could not be reached, or reported that it cannot serve now. Nothing
	// was done.
	ErrUnavailable = errors.New("store unavailable")

	// ErrUncertain: the store was asked and did not answer; the request may have been done or not.
	ErrUncertain = errors.New("outcome unknown")

	// ErrRefused: the store refuses: credentials, permissions, read-only, a schema of another
	// version. Asking again does not help. If the user lacks a permission, the error is also
	// fs.ErrPermission.
	ErrRefused = errors.New("refused by the store")

	// ErrDamaged: the store's record of this name is not a record of a lock, or cannot be read.
	// Nothing was done. Asking again does not help until an operator has removed it; the text
	// describes the record and where it is.
	ErrDamaged = errors.New("damaged record")

	// ErrInvalid: the request or configuration is not allowed; the text says what is allowed.
	ErrInvalid = errors.New("invalid")

	// ErrNoLimit: the request is for permits of a semaphore whose limit nobody has set. It is an
	// ErrInvalid, and final.
	ErrNoLimit = fmt.Errorf("%w limit: none is set for this name; set one by \"holdfast sem limit NAME M\" or Client.SetLimit",
		ErrInvalid)

	// ErrRetry: another transaction was in the way of the caller's own. Nothing was done. The caller
	// rolls its transaction back and runs the whole of it again.
	ErrRetry = errors.New("retry the transaction")

	// ErrSpent comes together with another error of Acquire that leaves the outcome open: the
	// session itself has cancelled the request, or is doing so. The caller must not use the ID
	// again and asks with another.
	ErrSpent = errors.New("the request has ended")

	// ErrClosed: the session or backend has been closed.
	ErrClosed = errors.New("closed")
)

// IsFinal reports whether err is a definite answer: nothing was done, and the same request gets the
// same answer until somebody changes the store, its settings or the request. It is false for
// [IsOver], which is about a grant and not about the request, and for all errors that leave the
// outcome open.
func IsFinal(err error) bool {
	return errors.Is(err, ErrKind) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrRefused) ||
		errors.Is(err, ErrDamaged) || errors.Is(err, ErrClosed)
}

// IsOver reports whether err means that the named grant has ended.
func IsOver(err error) bool { return errors.Is(err, ErrGone) || errors.Is(err, ErrTaken) }

// Spent returns err with the same text, which is ErrSpent as well.
func Spent(err error) error { return marked{err, ErrSpent} }

// Denied returns err with the same text, which is fs.ErrPermission as well: the user lacks a
// permission at the store.
func Denied(err error) error { return marked{err, fs.ErrPermission} }

// marked is an error that is another one as well, without its text.
type marked struct {
	error
	as error
}

func (e marked) Is(target error) bool { return target == e.as }
func (e marked) Unwrap() error        { return e.error }

// NotCallers returns err with the same text, but not as a context error: errors.Is is false for
// context.Canceled and context.DeadlineExceeded, and the text mentions no deadline. Stores and
// their clients have time limits of their own, which end in such errors; a caller would mistake
// them for the end of its own context.
func NotCallers(err error) error { return notCallers{err} }

type notCallers struct{ err error }

func (e notCallers) Error() string {
	return strings.ReplaceAll(e.err.Error(), context.DeadlineExceeded.Error(), "no answer in time")
}

// Is and As replace Unwrap.
func (e notCallers) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.err, target)
}

func (e notCallers) As(target any) bool { return errors.As(e.err, target) }
