// Package driver is the contract between holdfast and a store.
//
// A store is a lock table that is asked one step at a time. Every lock that holdfast
// offers is a request for some of a named resource, in arrival order, under a
// lease: a mutex asks for all of it, a reader for a share, a semaphore for N of Limit. The
// store decides and remembers; waiting, retrying, renewing, deadlines and re-entrancy are
// written once, in package holdfast, on top of [Session].
//
// # The rules
//
// Package drivertest checks a store against these; its failures cite them by number.
//
//   - R1: Every method is one bounded exchange. None waits for another holder.
//   - R2: The store's clock decides when a lease has run out, never a client's.
//   - R3: Every grant has a token larger than every earlier token of its name: over release,
//     expiry, break, restart, and loss of data as far as the store can.
//   - R4: Ownership is checked where the state lives, in the same atomic step: Release,
//     Renew, Cancel, Downgrade and Adopt act on the caller's own grant or not at all.
//   - R5: Every request may be repeated. A lost answer, a retry, a connection that broke in
//     the middle leave no second grant, no lost or doubled permit, and nobody in line
//     who does not wait.
//   - R6: A dead waiter stalls the line no longer than its own place in it lasts (a TTL after
//     its last sign of life, noticed when those behind renew theirs); a dead holder no longer than its lease.
//   - R7: The line is served in arrival order and strictly: a request that does not fit holds
//     up those behind it, so large requests and writers do not starve. A newcomer is
//     granted at once only when it fits and nobody waits.
//   - R8: Cancel leaves nothing behind, whichever way it crossed with a grant.
//   - R9: A name in use by one kind (or another limit) refuses another with ErrKind. Names
//     are kept apart byte for byte.
//   - R10: Break fences: every token given out afterwards is larger.
//   - R11: A lost wake-up costs time, never the lock: whoever renews a place or asks again
//     learns the truth, and dead leases are noticed by whoever asks next.
//   - R12: A grant that has run out stays ended even if nobody has taken the lock since:
//     Renew answers Gone, Release answers ErrGone.
//   - R13: Nothing is heard that is not on record. A push, an answer or an event tells only
//     what the store has already written, and committed, in the same step. When the store
//     refuses the write or the step fails half-way, nobody is told.
//   - R14: A waiter that was passed over hears nothing. The store decides first who gets the
//     grant, records it, and then tells that one waiter, once. No replica, second
//     connection or old subscription tells a waiter of a grant that is on record for another.
//   - R15: A damaged record harms its own name only. Other names are granted, renewed and
//     listed as if it were not there, and calls for its own name return ErrDamaged.
//   - R16: A push is a hint from a stranger. Whoever may send messages to sessions, and may not
//     take locks, ends no grant and no place in line and delays no other name. A waiter
//     believes a push only if it has what the sender must have been told by the store. If the
//     store has no such grant, the first renewal or release of the lease says so.
//
// To write a store, read memlock first: it is the meaning of all this in one short file.
package driver
