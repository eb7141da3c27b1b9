package history

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Event is one thing that a client did or was told, that happened at the fenced resource, or that
// was done to the system under test. Which fields count depends on Kind; the others are zero.
//
// The format of a file is one JSON object a line, in any order; docs/history.md describes it.
type Event struct {
	// T is when: nanoseconds of a clock that all recorders of the history share, on one machine
	// CLOCK_MONOTONIC ([Now]). Of an invocation it is read before the call, of an answer after it, so
	// that what really happened lies between the two.
	T int64

	// Client is who did it: "process" or "process/client". What is done to a process is done to all
	// its clients.
	Client string

	// ID is the attempt: unique in the history, the same from an Acquire to the Released of what it
	// got. Of a Fault and its Healed: the fault.
	ID string

	Name string // of the lock; of what is at the resource: of the lock that guards it

	// Target of a Fault, a Leader or a Gauge: the client, process, server or link; or what is counted.
	Target string

	// Text is for people: an error, a note. Of a Fault: its kind, see FaultStop.
	Text string

	TTL   time.Duration // Acquire: how long the store surely keeps what nobody renews. Run: the same for all
	Token uint64        // the fencing token; 0: the lock has none
	From  int64         // Granted, Renewed: since when the lease counts, see there. Lost: see there
	Value int64         // what was read, written or counted

	Kind Kind

	N      int32       // Acquire: permits asked for, 0 is 1. State: holders, or permits in use
	Limit  int32       // Acquire, State: how many permits there are
	Mode   driver.Mode // Acquire; 0 is Exclusive
	Result Result      // of an answer
	Wait   bool        // Acquire: it stands in line if need be, which is served in order of arrival
}

// Kind is what happened.
type Kind uint8

// The kinds. Unless it says otherwise an event has Client, ID and Name.
const (
	// Acquire: a lock is asked for: Mode, N, Limit, TTL, Wait.
	Acquire Kind = 1 + iota
	// Queued: the store has told that the attempt stands in line.
	Queued
	// Granted: the lock is held: Token. From is when the exchange was sent from whose sending (at the
	// earliest) the store counts the TTL; 0: not known.
	Granted
	// Refused: nothing was taken, and the store said so. Result Rejected: because the lock was not
	// free; else for another reason, which Text says.
	Refused
	// Cancelled: the caller gave up waiting. What it got unseen has been or is being given back.
	Cancelled
	// Unanswered: the call has ended without an answer: whether the lock was taken is unknown.
	Unanswered
	// Settled: what became of an Unanswered or Cancelled attempt, read from the store later: Token
	// if it was granted, 0 if it never was.
	Settled
	// Renewed: the store has proven that the grant stands. From is when the exchange was sent; 0: T.
	// ID may be empty if Token says which of the Client's grants it is.
	Renewed
	// Held: the library was asked at T or later and said that the lease is valid.
	Held
	// Lost: the application could see at T that the lease had ended without Release. From, if the
	// library knows it: since when it would have said so to whoever asked.
	Lost
	// Downgrade: an exclusive grant is to become a shared one.
	Downgrade
	// Downgraded: the answer: Result.
	Downgraded
	// Release: the lock is about to be released. From here on it is not claimed.
	Release
	// Released: the answer. Result: Accepted; Rejected: the grant had ended before; Unknown.
	Released

	// Begin: the first contact with the fenced resource: Token, Result.
	Begin
	// Read: of the fenced resource: Token, Value, Result.
	Read
	// Writing: a write is about to be sent: Token, Value. It need not be recorded, but without it
	// a write whose answer nobody recorded is taken for a damaged value.
	Writing
	// Write: the answer: Token, Value (which is now there), Result. T of a Begin, Read or Write is
	// read inside the step that the resource makes atomic, so that their order is the resource's.
	Write

	// Fault: something is broken from here on: ID, Target, Text (its kind).
	Fault
	// Healed: the fault with this ID has ended.
	Healed
	// Leader: Target leads (is primary, master) from here on, as far as is known.
	Leader
	// Died: the process or client Client is no more, and released nothing.
	Died
	// Closed: the client Client was closed in order.
	Closed
	// Broken: an operator is about to end the grant of Name that has this Token.
	Broken

	// State: what the store says of Name when everything is quiet: N holders, or permits in use; Value
	// waiters; Token the highest given out.
	State
	// Final: what the resource holds when everything is quiet: Value; Token the highest seen.
	Final
	// Gauge: Value of Target (goroutines, file descriptors) of Client, at first and at the end.
	Gauge
	// Run: Text says what is being run: store, seed, versions. TTL: of all attempts that say none.
	Run

	kinds // how many there are, plus one
)

var kindNames = [kinds]string{
	Acquire: "acquire", Queued: "queued", Granted: "granted", Refused: "refused", Cancelled: "cancelled",
	Unanswered: "unanswered", Settled: "settled", Renewed: "renewed", Held: "held", Lost: "lost",
	Downgrade: "downgrade", Downgraded: "downgraded", Release: "release", Released: "released",
	Begin: "begin", Read: "read", Writing: "writing", Write: "write",
	Fault: "fault", Healed: "healed", Leader: "leader", Died: "died", Closed: "closed", Broken: "broken",
	State: "state", Final: "final", Gauge: "gauge", Run: "run",
}

// String returns the word that stands in files.
func (k Kind) String() string {
	if k > 0 && k < kinds {
		return kindNames[k]
	}
	return "none"
}

// Result is an answer.
type Result uint8

// The results. The zero Result is that of an event that is no answer.
const (
	Accepted Result = 1 + iota // yes, it took effect
	Rejected                   // no, it did not
	Unknown                    // nobody knows; it counts neither as good nor as bad

	results // how many there are, plus one
)

var resultNames = [results]string{Accepted: "accepted", Rejected: "rejected", Unknown: "unknown"}

// String returns the word that stands in files.
func (r Result) String() string {
	if r < results {
		return resultNames[r]
	}
	return "none"
}

// Kinds of faults that have a meaning. Others may have any name.
const (
	// FaultStop: the process Target does not run (SIGSTOP, a suspended machine). While it lasts, and
	// afterwards until its grants end, its clients claim only what Held says: a program that does not
	// run does nothing.
	FaultStop = "stop"
	// FaultElection: the store elects a leader. As after any fault of what all share, leases may
	// start anew when it is over.
	FaultElection = "election"
)
