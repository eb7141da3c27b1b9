package holdfast

import (
	"context"
	"time"
)

// Observer receives the events of a client's locks, for metrics, traces and progress displays. Any
// field may be nil, and costs nothing then. Package observe joins several Observers, and has some.
//
// The goroutine that called Lock or Release calls Waiting, Acquired, WaitEnded, Released, LeaseEnded
// and BreakEnded, and goes on when they return. Goroutines of the client call Opened, Closed, Renewed,
// RenewalEnded, Lost and Exchanged, after the event and in the order of the events; Exchanged has a
// goroutine of its own. They also call LeaseEnded for leases that were lost or handed off. They call
// Released and LeaseEnded for leases that no caller has: those that Close releases, and those that
// LockAll releases while it waits. The calls of these goroutines delay nothing. If they are too slow,
// calls are dropped; Health has their number, and so has the next line of the log.
//
// An Observer may call methods of the client and of its leases. A field that panics in the goroutine
// of a caller leaves neither a lease nor a place in the queue behind.
type Observer struct {
	// Opened: New has opened c. Other events may come before it.
	Opened func(c *Client)

	// Closed: Close of c is about to return. Its leases have ended here; the store may not have answered.
	Closed func(c *Client)

	// Waiting: a Lock has joined the store's queue, or its place there has changed. Calls that wait
	// behind others of their client (Config.Passes) are not in it.
	Waiting func(Waiting)

	// Acquired: a Lock was granted after waiting for waited.
	Acquired func(name string, token uint64, waited time.Duration)

	// WaitEnded: a call for a lock has ended, granted or not, also one that did not wait. It is called
	// once for each call that was valid, with the context of the caller. A call that borrows a lease
	// (Reentrant) is none of its own.
	WaitEnded func(context.Context, WaitEnd)

	// Renewed: an exchange has renewed n leases and places in the queue, or failed to.
	Renewed func(n int, took time.Duration, err error)

	// RenewalEnded is Renewed with more about it, after the answer has been applied.
	RenewalEnded func(RenewalEnd)

	// Lost: a lease has ended without Release. Its contexts have been cancelled.
	Lost func(name string, token uint64, reason Reason)

	// Revoked: an operator has asked the holder of a lease to release it. The goroutine that calls
	// Renewed calls it.
	Revoked func(name string, token uint64, n Notice)

	// Released: a lease has been released after held. err is what Release returned.
	Released func(name string, token uint64, held time.Duration, err error)

	// LeaseEnded: a lease that WaitEnded has reported as granted has ended: it was released, lost or
	// handed off. It is called once for each of them; before WaitEnded, if the lease is lost at once.
	LeaseEnded func(LeaseEnd)

	// BreakEnded: a call of Client.Break has ended.
	BreakEnded func(BreakEnd)

	// Exchanged: an exchange with the store has ended.
	Exchanged func(Exchange)
}

// Waiting describes a place in the queue.
type Waiting struct {
	Name   string
	ID     string  // of the request, as Record.Waiters shows it
	Ahead  int     // how many requests are before it in the queue
	Holder *Holder // one of those in the way; nil if the store did not name any
}

// Mode is how a lock is held, or wanted.
type Mode string

// The modes.
const (
	ModeExclusive Mode = "exclusive" // a Mutex, an Election, or an RWMutex for writing
	ModeShared    Mode = "shared"    // an RWMutex for reading
	ModePermits   Mode = "permits"   // of a Semaphore
)

// Outcome is how a call for a lock has ended.
type Outcome string

// The outcomes.
const (
	OutcomeGranted  Outcome = "granted"
	OutcomeHeld     Outcome = "held"     // the call does not wait, and the lock was not free
	OutcomeTimeout  Outcome = "timeout"  // WaitAtMost, the tries of Poll, or the context's deadline
	OutcomeCanceled Outcome = "canceled" // the caller's context was cancelled, or the client closed
	OutcomeRefused  Outcome = "refused"  // ErrDeadlock, ErrKind, ErrInvalid, ErrRefused, ErrGone
	OutcomeFailed   Outcome = "failed"   // ErrUnavailable, ErrUncertain, ErrDamaged, and all others
)

// WaitEnd describes a call for a lock that has ended.
type WaitEnd struct {
	Store   string // the kind of store: "redis", "sqlite", "memory", …
	Op      string // "lock", "try lock", "read lock", "acquire", "campaign", "adopt", …
	Name    string
	Mode    Mode
	Permits int // of a semaphore; 1 otherwise

	Outcome Outcome
	Err     error         // what the call returned; nil if the lock was granted
	Token   uint64        // of the lease, if the lock was granted; readers that share a grant have one
	ID      string        // of the grant, as Record.Holders shows it; LeaseEnd has it, too
	Began   time.Time     // when the call began
	Waited  time.Duration // since then
	Queued  time.Time     // when it got a place in the queue, or behind other calls of its client; zero: never
	Ahead   int           // how many requests were before it in the queue then
	Holder  *Holder       // one of those in the way, as last heard; nil if the store did not name any
}

// LeaseEnd describes a lease that has ended.
type LeaseEnd struct {
	Store   string // the kind of store: "redis", "sqlite", "memory", …
	Op      string // of the call that took it: "lock", "campaign", …
	Name    string
	Mode    Mode
	Permits int // of a semaphore; 1 otherwise
	Token   uint64
	ID      string // of the grant, as Record.Holders shows it

	Held   time.Duration // since the grant, or the adoption
	Reason Reason        // why it was lost, or ReasonHandedOff; "" if it was released
	Err    error         // the loss, or what Release returned; nil if it was released or handed off
}

// Lost reports whether the lease ended without its holder's will.
func (e *LeaseEnd) Lost() bool { return e.Reason != "" && e.Reason != ReasonHandedOff }

// RenewalEnd describes an exchange that has renewed leases and places in the queue, or failed to.
type RenewalEnd struct {
	Store  string        // the kind of store: "redis", "sqlite", "memory", …
	Number int           // of leases and places
	Leases int           // how many leases it has renewed; 0 if it failed
	Took   time.Duration // the exchange
	Err    error         // nil: everything was renewed, or is known to have ended

	// Left is the lease margin: for how long the lease with the least time left could still have been
	// relied on when the answer came, had the renewal failed. It is about two thirds of the TTL, less
	// Config.Margin, if all is well. 0 if there are no Leases.
	Left time.Duration
}

// BreakEnd describes a call of Client.Break that has ended.
type BreakEnd struct {
	Store string // the kind of store: "redis", "sqlite", "memory", …
	Name  string
	Token uint64 // of the grant
	Err   error  // what Break returned; nil: the grant has ended
}

// Exchange describes an exchange with the store.
type Exchange struct {
	Store string        // the kind of store: "redis", "sqlite", "memory", …
	Op    string        // "acquire", "release", "renew", …: the method of package driver, in words
	Took  time.Duration // how long the answer took, or the failure
	Err   error         // nil: the store has answered, also that the lock is not free
}
