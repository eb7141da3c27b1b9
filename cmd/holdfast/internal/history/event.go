package history

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Event is one action or observation of a client, one step of the fenced resource, or one fault.
// Kind determines which fields count; the others are zero.
//
// A file has one JSON object a line, in any order; docs/history.md describes the format.
type Event struct {
	// T is the time: nanoseconds of a clock that all recorders of the history share, on one machine
	// CLOCK_MONOTONIC ([Now]). It is read before a call and after an answer, so that the real
	// effect lies between the two.
	T int64

	// Client is the actor: "process" or "process/client". An event of a process applies to all its
	// clients.
	Client string

	// ID is the attempt: unique in the history, the same from an Acquire to the Released of its
	// grant. Of a Fault and its Healed: the fault.
	ID string

	Name string // of the lock; of a resource's event: of the lock that guards it

	// Target of a Fault, a Leader or a Gauge: the client, process, server or link; or the quantity.
	Target string

	// Text is for people: an error, a note. Of a Fault: its kind, see FaultStop.
	Text string

	// Acquire: how long the store surely keeps a grant without renewal. Run: the default.
	TTL   time.Duration
	Token uint64 // the fencing token; 0: the lock has none
	From  int64  // Granted, Renewed: since when the lease counts, see there. Lost: see there
	Value int64  // the value read, written or counted

	Kind Kind

	N      int32       // Acquire: requested permits, 0 is 1. State: holders, or permits in use
	Limit  int32       // Acquire, State: the limit of the permits
	Mode   driver.Mode // Acquire; 0 is Exclusive
	Result Result      // of an answer
	Wait   bool        // Acquire: it queues if necessary, in order of arrival
}

// Kind is the kind of an event.
type Kind uint8

// The kinds. Unless stated otherwise an event has Client, ID and Name.
const (
	// Acquire: a request for a lock: Mode, N, Limit, TTL, Wait.
	Acquire Kind = 1 + iota
	// Queued: the store has reported that the attempt is in the queue.
	Queued
	// Granted: the lock is held: Token. From is the send time of the exchange from which the store
	// counts the TTL, at the earliest; 0: unknown.
	Granted
	// Refused: the store answered that nothing was taken. Result Rejected: because the lock was not
	// free; otherwise Text has the reason.
	Refused
	// Cancelled: the caller stopped waiting. A grant that it got meanwhile is released.
	Cancelled
	// Unanswered: the call ended without an answer: it is unknown whether the lock was taken.
	Unanswered
	// Settled: the later known outcome of an Unanswered or Cancelled attempt, read from the store:
	// Token if it was granted, 0 if it never was.
	Settled
	// Renewed: the store has proved that the grant exists. From is when the exchange was sent; 0:
	// T. ID may be empty if Token identifies the Client's grant.
	Renewed
	// Held: the library was asked at T or later, and answered that the lease is valid.
	Held
	// Lost: the application could see at T that the lease had ended without Release. From, if
	// known: since when the library would have reported it.
	Lost
	// Downgrade: an exclusive grant is to become a shared one.
	Downgrade
	// Downgraded: the answer: Result.
	Downgraded
	// Release: before the release. From here on the lock is not claimed.
	Release
	// Released: the answer. Result: Accepted; Rejected: the grant had ended before; Unknown.
	Released

	// Begin: the first contact with the fenced resource: Token, Result.
	Begin
	// Read: of the fenced resource: Token, Value, Result.
	Read
	// Writing: before a write: Token, Value. It is optional. Without it a write whose answer was
	// not recorded counts as a damaged value.
	Writing
	// Write: the answer: Token, Value (the new one), Result. T of a Begin, Read or Write is read
	// within the resource's atomic step, so that their order is the resource's.
	Write

	// Fault: a fault begins: ID, Target, Text (its kind).
	Fault
	// Healed: the fault with this ID has ended.
	Healed
	// Leader: Target leads (is primary, master) from here on, as far as is known.
	Leader
	// Died: the process or client Client ended without a release.
	Died
	// Closed: the client Client was closed in order.
	Closed
	// Broken: an operator is about to end the grant of Name with this Token.
	Broken

	// State: the store's answer for Name at the end, without load: N holders, or permits in use;
	// Value waiters; Token the highest granted.
	State
	// Final: the resource at the end, without load: Value; Token the highest seen.
	Final
	// Gauge: Value of Target (goroutines, file descriptors) of Client, at the start and at the end.
	Gauge
	// Run: Text describes the run: store, seed, versions. TTL: of all attempts without one. Target:
	// Observed or Unordered, of Client; of all clients without one.
	Run

	kinds // the number of kinds, plus one
)

var kindNames = [kinds]string{
	Acquire: "acquire", Queued: "queued", Granted: "granted", Refused: "refused", Cancelled: "cancelled",
	Unanswered: "unanswered", Settled: "settled", Renewed: "renewed", Held: "held", Lost: "lost",
	Downgrade: "downgrade", Downgraded: "downgraded", Release: "release", Released: "released",
	Begin: "begin", Read: "read", Writing: "writing", Write: "write",
	Fault: "fault", Healed: "healed", Leader: "leader", Died: "died", Closed: "closed", Broken: "broken",
	State: "state", Final: "final", Gauge: "gauge", Run: "run",
}

// String returns the word used in files.
func (k Kind) String() string {
	if k > 0 && k < kinds {
		return kindNames[k]
	}
	return "none"
}

// Result is the result of an answer.
type Result uint8

// The results. Events that are no answers have the zero Result.
const (
	Accepted Result = 1 + iota // yes, it took effect
	Rejected                   // no, it did not
	Unknown                    // unknown; it counts neither as good nor as bad

	results // the number of results, plus one
)

var resultNames = [results]string{Accepted: "accepted", Rejected: "rejected", Unknown: "unknown"}

// String returns the word used in files.
func (r Result) String() string {
	if r < results {
		return resultNames[r]
	}
	return "none"
}

// Observed is a Target of Run: the recorder is not the client. It learns of a loss late, so a grant is
// claimed only up to its last Held.
const Observed = "observed"

// Unordered is a Target of Run: the requests have no place in the order of arrival. The other
// clients' are judged among themselves.
const Unordered = "unordered"

// Kinds of faults with a meaning. Others may have any name.
const (
	// FaultStop: the process Target does not run (SIGSTOP, a suspended machine). During the fault,
	// and afterwards until its grants end, its clients claim a lock only by Held: a stopped program
	// does nothing.
	FaultStop = "stop"
	// FaultElection: the store elects a leader. As after any shared fault, leases may start anew at
	// its end.
	FaultElection = "election"
)
