package zk

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Code is a server's error code (KeeperException.Code). The errors of calls wrap it, so that
// errors.Is(err, zk.ErrNoNode) works.
type Code int32

// The codes that a lock meets. With ErrConnectionLoss the request was sent and no answer was
// received: it may have acted, may act later, or may never act. With every other code the server
// answered, and the request did not act.
const (
	ErrSystem          Code = -1
	ErrRolledBack      Code = -2 // an operation of a multi in which another failed
	ErrConnectionLoss  Code = -4
	ErrMarshalling     Code = -5
	ErrUnimplemented   Code = -6
	ErrTimeout         Code = -7
	ErrBadArguments    Code = -8
	ErrUnknownSession  Code = -12
	ErrAPI             Code = -100
	ErrNoNode          Code = -101
	ErrNoAuth          Code = -102
	ErrBadVersion      Code = -103
	ErrEphemeralParent Code = -108 // ephemeral nodes have no children
	ErrNodeExists      Code = -110
	ErrNotEmpty        Code = -111
	ErrSessionExpired  Code = -112
	ErrInvalidACL      Code = -114
	ErrAuthFailed      Code = -115
	ErrSessionMoved    Code = -118 // another server has the session now
	ErrNotReadOnly     Code = -119
	ErrNoWatcher       Code = -121
	ErrQuotaExceeded   Code = -125
	ErrThrottled       Code = -127
)

var codeText = map[Code]string{
	ErrSystem:          "the server met an error",
	ErrRolledBack:      "another operation failed",
	ErrConnectionLoss:  "the connection was lost and the outcome is not known",
	ErrMarshalling:     "the server did not understand the request",
	ErrUnimplemented:   "the server does not know this request",
	ErrTimeout:         "the server gave up",
	ErrBadArguments:    "bad arguments",
	ErrUnknownSession:  "unknown session",
	ErrAPI:             "the server refused the request",
	ErrNoNode:          "no such node",
	ErrNoAuth:          "not permitted",
	ErrBadVersion:      "another version",
	ErrEphemeralParent: "an ephemeral node has no children",
	ErrNodeExists:      "the node exists",
	ErrNotEmpty:        "the node has children",
	ErrSessionExpired:  "the session has expired",
	ErrInvalidACL:      "invalid ACL",
	ErrAuthFailed:      "authentication failed",
	ErrSessionMoved:    "the session has moved to another server",
	ErrNotReadOnly:     "the server is read-only",
	ErrNoWatcher:       "no such watch",
	ErrQuotaExceeded:   "quota exceeded",
	ErrThrottled:       "the server is overloaded",
}

// Error describes the code.
func (c Code) Error() string {
	if s, ok := codeText[c]; ok {
		return s
	}
	return "error " + strconv.Itoa(int(c))
}

// Errors of this client.
var (
	// ErrNotSent: the request was not sent, and never will be.
	ErrNotSent = errors.New("not sent")
	// ErrClosed: the session's owner closed it.
	ErrClosed = errors.New("the session is closed")
	// ErrTooLarge: a packet exceeds Config.MaxPacket. A request was not sent (the error is then
	// also ErrNotSent). An answer was discarded.
	ErrTooLarge = errors.New("packet too large")
)

// opError adds the request to err.
type opError struct {
	what, path string
	err        error
}

func (e *opError) Error() string { return "zk: " + e.what + " " + e.path + ": " + e.err.Error() }
func (e *opError) Unwrap() error { return e.err }

// errorList is the errors of several servers, in one line.
type errorList []error

// joined returns the errors that are not nil as one, nil if there are none.
func joined(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return errorList(errs)
}

func (e errorList) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e errorList) Unwrap() []error { return e }

// notSent returns the error of a request that was not sent because of why.
func notSent(why error) error { return fmt.Errorf("%w: %w", ErrNotSent, why) }

// uncertain returns the error of a request whose answer nobody awaits any more because of why.
func uncertain(why error) error {
	if why == nil || errors.Is(why, ErrConnectionLoss) {
		return ErrConnectionLoss
	}
	return fmt.Errorf("%w: %w", ErrConnectionLoss, why)
}
