package holdfast

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// The errors to test for with errors.Is. They arrive wrapped in an [*Error] that names the lock and
// the operation; the store's own cause is wrapped as well. When the context of a wait ends, the
// error is the context's: errors.Is(err, context.DeadlineExceeded). No error is a context's unless
// that context has ended: a store that does not answer is ErrUncertain.
var (
	// ErrHeld: the lock was not free, and the call does not wait, or has waited as long as it may.
	ErrHeld = errors.New("held by another")

	// ErrLost: the lease ended without Release. Stop, and do not write: somebody else may have the
	// lock. [Error.Reason] says why. A lease that was not renewed in time also wraps the error of
	// the last renewal: ErrUnavailable or ErrUncertain, with the store's cause.
	ErrLost = errors.New("lease lost")

	// ErrReleased: the holder has already released the lease.
	ErrReleased = errors.New("already released")

	// ErrDeadlock: the context already holds this lock, so waiting for it would never end. Use
	// Reentrant to take it again on purpose.
	ErrDeadlock = errors.New("this context already holds it")

	// ErrUpgrade is an ErrDeadlock: the context holds the lock for reading and wants it for
	// writing. Two callers that did so would wait for each other for ever. Release first, or take
	// the lock for writing from the start and Downgrade.
	ErrUpgrade = fmt.Errorf("%w for reading, and cannot also have it for writing", ErrDeadlock)

	// ErrKind: the name is in use as another kind of lock, or with another limit.
	ErrKind = driver.ErrKind

	// ErrGone: no grant has this token, no latch has this name, or no limit is set. The text says which.
	ErrGone = driver.ErrGone

	// ErrRetry: another transaction was in the way of the one that InTx was given. Roll that back
	// and run the whole of it again.
	ErrRetry = driver.ErrRetry

	// ErrUncertain: the store did not answer. The client undoes what the store may have done; else
	// it expires within a TTL.
	ErrUncertain = driver.ErrUncertain

	// ErrUnavailable: the store cannot be reached, or reports that it cannot serve now.
	ErrUnavailable = driver.ErrUnavailable

	// ErrRefused: the store refuses: credentials, permissions, read-only, another version of its
	// schema. If the user lacks a permission, the error is also fs.ErrPermission.
	ErrRefused = driver.ErrRefused

	// ErrDamaged: the store's record of the name cannot be read. Nothing was done. An operator has
	// to remove the record; other names are not affected.
	ErrDamaged = driver.ErrDamaged

	// ErrInvalid: a name, option or duration is not allowed, or the store does not keep this kind of
	// lock. The text says what is allowed.
	ErrInvalid = driver.ErrInvalid

	// ErrUnrecorded: Break or Revoke has done its work, and the store has not confirmed that it keeps who
	// did it, and why.
	ErrUnrecorded = errors.New("done, but not recorded in the history")

	// ErrClosed: the client has been closed.
	ErrClosed = driver.ErrClosed
)

// Reason is why a lease has ended, other than by Release. The end of a lease is not delayed to find
// the reason. So for a moment it may be ReasonEnded, ReasonForgotten or ReasonTaken, and then a more
// precise one. Why, Release, Do, the log and the Observer wait for that, for a second at most. A
// client asks about at most 64 losses at a time; those beyond keep the first reason.
type Reason string

// The reasons.
const (
	ReasonExpired     Reason = "expired"     // not renewed in time, because this process or machine was paused
	ReasonUnreachable Reason = "unreachable" // not renewed in time, because the store did not answer
	ReasonTaken       Reason = "taken"       // not renewed in time, and another holds the lock now
	ReasonSession     Reason = "session"     // the store ended the client's session
	ReasonMaxHold     Reason = "max hold"    // the MaxHold of the lock has passed
	ReasonBroken      Reason = "broken"      // an operator broke it: see Error.Notice
	ReasonEnded       Reason = "ended"       // the store ended it: it expired there, or was broken without a notice

	// The store has no record of the grant. It says why, if it can (Redis).
	ReasonForgotten Reason = "forgotten" // the store cannot say why
	ReasonEvicted   Reason = "evicted"   // the store removed the record to save memory
	ReasonFlushed   Reason = "flushed"   // somebody removed all data, as FLUSHALL does
	ReasonRestarted Reason = "restarted" // the store has started again without the record
	ReasonDeleted   Reason = "deleted"   // somebody removed this record

	ReasonHandedOff Reason = "handed off" // with ErrReleased, after HandOff
)

// Error is what every operation on a lock returns when it fails.
type Error struct {
	Op     string  // "lock", "release", …
	Name   string  // of the lock
	Holder *Holder // who has the lock, as the store last said; nil if it did not say
	Reason Reason  // why the lease has ended, if it has
	Notice *Notice // with ReasonBroken: who broke it, and why
	coarse *Error  // what the lease had ended with before the store gave this reason; nil: the same
	Err    error   // one of the errors above or a context's, with its cause
}

// Error is one line: operation, name, what went wrong, who holds the lock.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("holdfast: " + e.Op)
	if e.Name != "" { // a ticket that cannot be read has none, and a list or a watch of all names
		fmt.Fprintf(&b, " %q", e.Name)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s", e.Reason)
		if e.Notice != nil {
			fmt.Fprintf(&b, " by %s", e.Notice)
		}
		b.WriteByte(')')
	}
	switch {
	case e.Holder == nil:
	case errors.Is(e.Err, ErrUnavailable) || errors.Is(e.Err, ErrUncertain): // whose text says nothing of a holder
		fmt.Fprintf(&b, "; last known holder: %s", e.Holder)
	case errors.Is(e.Err, ErrHeld):
		fmt.Fprintf(&b, ": %s", e.Holder)
	case e.Holder.Kept || e.Holder.Partial: // perhaps nobody holds it
		fmt.Fprintf(&b, "; %s", e.Holder)
	default:
		fmt.Fprintf(&b, "; held by %s", e.Holder)
	}
	return b.String()
}

// Unwrap returns the sentinel and its cause.
func (e *Error) Unwrap() error { return e.Err }

func lost(op string, r *driver.Request, reason Reason) *Error {
	return &Error{Op: op, Name: r.Name, Reason: reason, Err: ErrLost}
}

// final reports whether err is the store's answer, and not a failure to get one.
func final(err error) bool { return driver.IsFinal(err) || driver.IsOver(err) }

// decided is final for an open client, which opens another session when one is over.
func decided(err error) bool { return final(err) && !errors.Is(err, ErrClosed) }

// asOutage makes sure that a store's failure is ErrUnavailable or ErrUncertain. ErrClosed is only
// for clients: a session that is over is an outage until another is open.
func asOutage(err error) error {
	if errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: the store has ended the session, and no other could be opened yet", ErrUnavailable)
	}
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUncertain) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// asRead words the failure of an exchange that changes nothing: only its answer is unknown.
func asRead(err error) error {
	if errors.Is(err, ErrUncertain) {
		return unread{err}
	}
	return err
}

type unread struct{ error }

func (e unread) Error() string {
	return strings.Replace(e.error.Error(), ErrUncertain.Error(), "not read", 1)
}

func (e unread) Unwrap() error { return e.error }
