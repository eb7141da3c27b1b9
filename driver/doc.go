// Package driver is the contract between holdfast and a store.
//
// A store is a lock table that executes one step at a time. Every request asks for a part of a named
// resource, in order of arrival, under a lease. A mutex asks for all of it, a reader for a share, a
// semaphore for N of its Limit permits. A grant is the store's record that a request has what it
// asked for; a place is the record that a request waits in the queue. The store decides and
// remembers. Package holdfast implements waiting, retries, renewals, deadlines and reentrancy once,
// on top of [Session].
//
// # The rules
//
// Package drivertest checks a store against these rules; its failures cite them by number.
//
//   - R1: Every method is one bounded exchange. None waits for another holder.
//
//   - R2: The store's clock decides when a lease has expired, never a client's.
//
//   - R3: Every grant has a token larger than every earlier token of its name, across release,
//     expiry, break and restart. A store achieves that across a loss of data as far as it can.
//
//   - R4: The store checks ownership where the state is, in the same atomic step: Release, Renew,
//     Cancel, Downgrade, Reduce and Adopt act on the caller's own grant or not at all.
//
//   - R5: Every request may be repeated. A lost answer, a retry or a broken connection leaves no
//     second grant, no lost or doubled permit, and no place in the queue without a waiter.
//
//   - R6: A dead waiter delays the queue until its place expires: a TTL after its last renewal,
//     noticed when later waiters renew. A dead holder delays it until its lease expires.
//
//   - R7: The store serves the queue strictly in order of arrival. A request that does not fit
//     holds up those behind it, so large requests and writers do not starve. A newcomer is granted
//     at once only when it fits and nobody waits.
//
//   - R8: Cancel leaves neither a place nor a grant behind, even if it crosses a grant on the way.
//
//   - R9: A name in use as one kind, or with one limit, refuses requests of another with ErrKind.
//     Names are compared byte for byte.
//
//   - R10: Break fences: every later token is larger.
//
//   - R11: A lost push costs time, never the lock. The answer to the next renewal of a place, or to
//     the next Acquire, has the true state; any such exchange also ends expired leases.
//
//   - R12: A grant that has expired stays ended, even if nobody has taken the lock since: Renew
//     answers Gone, Release returns ErrGone.
//
//   - R13: The store reports only what is on record. Pushes, answers and events contain only what
//     the store has already written, and committed, in the same step. When the store refuses the
//     write or the step fails half-way, it sends nothing.
//
//   - R14: A waiter that was passed over receives no push. The store first decides who gets the
//     grant, then records it, and then sends one push to that waiter. No replica, second connection
//     or old subscription reports to one waiter a grant that is on record for another.
//
//   - R15: A damaged record affects its own name only. Other names are granted, renewed and listed
//     as if it did not exist, and calls for its own name return ErrDamaged.
//
//   - R16: A push is an unproven hint. A sender that may send messages to sessions, but may take no
//     locks, can end no grant and no place, and can delay no other name. A waiter believes a push
//     only if it contains data that the sender must have received from the store. If the store has
//     no such grant, the first renewal or release of the lease reports that.
//
//   - R17: A lease may be shorter than the TTL (Kinds.Leases). A request or a renewal with a Lease
//     makes its grant or place last for that time from then, or up to a fortieth of the TTL longer,
//     although the session lives on. If an earlier exchange has set a later end, that end stays. No
//     exchange makes a lease end earlier: it may arrive after a later exchange, on which the client
//     relies.
//
//   - R18: A grant of permits never gets more of them. Reduce names how many remain, so it may be
//     repeated and may arrive late. In the same step it grants the lock to waiters that fit then. No
//     later exchange, an Acquire of the same ID and an adoption included, restores the number.
//
//   - R19: A limit that was set stays until it is set again or removed. Until then the name is a
//     semaphore, however long nobody uses it (R9): it is listed, and its tokens go on growing. A
//     request with Limit 0 uses the limit that is set. It waits under every later limit, even if it
//     wants more permits than that. ErrNoLimit: no limit is set.
//
//   - R20: A history has the entries that clients have added, each once, in order, up to a length. It
//     affects no lock, and no lock affects it.
//
//   - R21: A grant may take a block of tokens (Kinds.Blocks): its own, and Request.Tokens - 1 below
//     it. All of them are larger than every earlier token of the name, and smaller than every later
//     one. The store knows the grant by its own token alone. The client numbers what it does under
//     the grant with the other tokens. A store whose tokens are times may bound a block
//     (Kinds.Bounded). If the last token of a block would be far ahead of the clock at the moment of
//     the grant, the grant has its own token only. That token is odd, and the token of a whole block
//     is even ([Request.Granted]).
//
//   - R22: A grant may call its session back when another request waits behind it (Kinds.CallBack):
//     in the step that writes the place of that request, and whenever such a place is renewed. A
//     request that is refused writes nothing, and calls nobody back. A call-back ends no grant.
//
// To write a store, read package memlock first: it is the whole contract in one short file.
package driver
