package driver

import (
	"context"
	"time"
)

// A Backend is a store that keeps a lock table. Its methods may be called concurrently. The
// operator's methods need no session: all but Name, Kinds, Open and Close.
type Backend interface {
	// Name returns the kind of store in one lower-case word: "redis", "sqlite", "memory".
	Name() string

	// Kinds returns what the store keeps. It sends nothing. Package holdfast refuses other calls with
	// ErrInvalid before it asks the store; a Backend or Session refuses them with ErrInvalid, too.
	Kinds() Kinds

	// Open starts a session: the identity under which one client holds and waits. Before it
	// returns, whatever carries pushes must be set up, so that no push is missed. Errors:
	// ErrUnavailable, ErrRefused, ErrInvalid.
	Open(ctx context.Context, cfg SessionConfig) (Session, error)

	// List returns up to limit records of names in use that begin with prefix, in byte order, from the
	// first name that is larger than after. A name is in use if it is held, kept or waited for, is a
	// latch, or is a semaphore whose limit is set. The cost depends on the number of names in this
	// store, never on other data next to them.
	List(ctx context.Context, prefix, after string, limit int) ([]Record, error)

	// Inspect returns the record of one name; the zero Kind means that it is not in use.
	Inspect(ctx context.Context, name string) (Record, error)

	// Break ends the grant of name that has this token, whoever holds it. In the same step it grants
	// the lock to waiters that fit, and makes sure that every later token is larger: so the old
	// holder is fenced (R10). ErrGone: no grant has this token. A latch has no grants.
	Break(ctx context.Context, name string, token uint64) error

	// RemoveLatch removes a latch, its count and the IDs that have counted. Its waiters are woken, ask
	// again and get ErrGone. ErrGone: there is no such latch; ErrKind: the name is in use as something
	// else.
	RemoveLatch(ctx context.Context, name string) error

	// SetLimit sets the limit of a semaphore, in use or not. It stays until it is set again or removed.
	// Until then the name is a semaphore, even if nobody uses it (R19). A lower limit takes nothing from
	// holders; nothing is granted until the grants fit again. Limit 0 removes what was set: the limit
	// then ends with the last user. ErrKind: in use as something else; ErrGone: there is no limit to
	// remove.
	SetLimit(ctx context.Context, name string, limit int) error

	// AddHistory appends an entry to the history of name, and drops the oldest entries until keep are
	// left. A history is for people: texts that clients add about what they did. It takes no part in
	// any decision about a grant, lists no name, and outlives the record of its name. The empty name
	// has a history too, which belongs to no lock. A text that the history has already is not added
	// again, so the exchange may be repeated. Errors: ErrInvalid (CheckEntry), ErrUnavailable,
	// ErrUncertain, ErrRefused, ErrDamaged.
	AddHistory(ctx context.Context, name, text string, keep int) error

	// History returns the entries of name, oldest first, in the order in which they were added. A name
	// without a history has none. Errors: those of AddHistory.
	History(ctx context.Context, name string) ([]Entry, error)

	// WhyMissing returns the likely cause if a record of name, which existed held ago, is gone: see
	// Change.Missing. CauseUnknown: the store cannot tell.
	WhyMissing(ctx context.Context, name string, held time.Duration) (Cause, error)

	// Close frees the resources of the backend (connections that it opened itself), after its
	// sessions have been closed. It may be called more than once.
	Close() error
}

// Kinds says what a store keeps besides mutexes.
type Kinds struct {
	Shared     bool // requests with Shared, and Downgrade
	Semaphores bool // requests with Permits, Reduce and SetLimit
	Latches    bool // SetCount, CountDown, Await, RemoveLatch
	MinHold    bool // Request.MinHold, and a positive keep of Release
	Leases     bool // Request.Lease and Hold.Lease
	Blocks     bool // Request.Tokens
	Bounded    bool // the store may give one token in place of a block: see Request.Granted
	CallBack   bool // Request.CallBack

	// Setting is the setting, if there is one, because of which the store does not keep
	// everything, such as "protocol=single". Errors name it.
	Setting string
}

// AllKinds returns the Kinds of a store that keeps everything.
func AllKinds() Kinds {
	return Kinds{Shared: true, Semaphores: true, Latches: true, MinHold: true, Leases: true, Blocks: true,
		CallBack: true}
}

// SessionConfig describes a client to the store.
type SessionConfig struct {
	ID   string        // unguessable, unique, [0-9a-z], at most 32 bytes
	TTL  time.Duration // the lease duration: grants and places not renewed for this long expire
	Info string        // an encoded Info about the client, for operators

	// Doubt, if not nil, is called with a name when something suggests that a grant of the session has
	// ended, such as a message of another program. That is no proof. The client renews its grants of
	// that name, and learns from the answer. Doubt does not block and may be called
	// concurrently, for any name, until Close has returned. Most stores never call it.
	Doubt func(name string)

	// Wanted, if not nil, is for grants of this session whose requests have CallBack. It is called when
	// another request has joined the queue behind such a grant, and again whenever the place of that
	// request is renewed. id is that of the grant's own request, which a stranger cannot know (R16).
	// Wanted is also called when such a push may have been missed, and may be called before Acquire
	// returns the grant. It does not block, calls nothing of the session, and may be called concurrently
	// until Close has returned.
	Wanted func(name, id string)
}

// A Session is one client's identity at the store. Its methods may be called concurrently, except
// that calls for one request ID do not overlap. Only Renew and Reduce may overlap any call, also
// another of their own, and Cancel may overtake an Acquire whose caller has given up.
//
// Every method is one bounded exchange and never waits for another holder (R1). It returns when the
// store has answered, when ctx ends, or when the driver's own limit for a silent store has passed,
// whichever is first. Package holdfast bounds ctx.
type Session interface {
	// TTL returns the lease duration that the store granted; it may differ from what was asked.
	TTL() time.Duration

	// Acquire sends the request once; the caller may change req when it returns. Acquire with the
	// same ID again takes no second grant and keeps the place in the queue (R5); if the request has
	// a grant, it renews that and returns the same token. A request that does not wait writes
	// nothing when it is refused.
	//
	// Errors: ErrKind, ErrInvalid, ErrRefused, ErrClosed are final: nothing was taken. Any other
	// error leaves the outcome open; the caller asks again or cancels. If the error is also
	// ErrSpent, the caller asks again with another ID, and cancels this one if the error is
	// ErrUncertain. A request that does not wait and was refused does not use its ID again.
	Acquire(ctx context.Context, req *Request) (Reply, error)

	// Cancel removes the request from the queue. If the request got a grant, Cancel ends it at once: a
	// minimum hold does not apply to a grant that nobody used. If there is neither, Cancel does
	// nothing. After Cancel has returned nil, no push for the ID follows.
	Cancel(ctx context.Context, name, id string) error

	// Release ends exactly the grant h and grants the lock to waiters that fit. If keep is positive
	// or the grant has a minimum hold, the name stays taken until the later of the two is over, and
	// nobody can renew it. ErrGone: the grant had already ended (expired, broken, or released
	// before); ErrTaken: it had ended, the name has been granted again since, and somebody holds it
	// now.
	Release(ctx context.Context, h Hold, keep time.Duration) error

	// Renew sets the lease of every grant and every place (Token 0) in holds to a full TTL from now,
	// or to Hold.Lease. It takes one exchange, or one per batch of a few hundred. It returns a Change
	// for each hold whose state has changed; see Change. It never revives a grant that has ended,
	// even if nobody else has taken the name. The client also calls it with no
	// holds, at least every third of a TTL, for stores whose session needs it; others return at
	// once. An error means that nothing is proved; a store that proved some and not others reports
	// the others as Unknown. A hold whose record is damaged is Gone; the others are still renewed
	// (R15).
	Renew(ctx context.Context, holds []Hold) ([]Change, error)

	// Downgrade turns the exclusive grant h into a shared one with the same token. No other writer
	// gets the lock in between, and the readers at the head of the queue are let in. ErrGone,
	// ErrTaken as for Release.
	Downgrade(ctx context.Context, h Hold) error

	// Reduce lowers the permits of the grant h to n, and grants the others to waiters that fit. The
	// grant keeps its token, its ID and its lease. A grant that has n permits or fewer keeps them. So
	// a repeat changes nothing, and a Reduce that arrives after a later one gives no permits back to
	// the grant (R18). ErrInvalid: n is not from 1 to MaxLimit, or the minimum hold of a
	// grant with more permits is not over. ErrKind: the grant is not one of a semaphore. ErrGone,
	// ErrTaken as for Release.
	Reduce(ctx context.Context, h Hold, n int) error

	// Adopt transfers the grant h, which another session took, to this session, and sets its lease
	// to a full TTL. The grant's request ID becomes id, which belongs to this session and is as
	// unique as any request's, and its Info becomes info; its token stays. From then on no grant has
	// the ID h.ID: Renew, Release and Cancel of h.ID do not affect the grant, nor does the end of the
	// old session. A repeat with the same h and id succeeds and renews the lease (R5).
	// ErrGone, ErrTaken as for Release; ErrInvalid: id is malformed, or belongs to another grant or
	// place of the name.
	Adopt(ctx context.Context, h Hold, id, info string) error

	// SetCount creates the latch with count n, and reports whether it did: a latch that exists
	// keeps its count. ErrKind: the name is in use as something else.
	SetCount(ctx context.Context, name string, n int64) (bool, error)

	// CountDown takes one from the latch, once for each id however often it is called, and returns
	// what is left. The count does not go below zero. ErrGone: no such latch.
	CountDown(ctx context.Context, name, id string) (int64, error)

	// Await asks once whether the latch has reached zero: granted (with Token 1), or not yet. If
	// not yet, the store remembers an interest, and sends a push at zero and when the latch is
	// removed. An interest is no place in the queue, so Renew does not know it. The client asks
	// again every third of a TTL, which renews the interest and makes up for a lost push (R11). The
	// interest lasts a TTL or longer; Cancel and the end of the session end it. ErrGone: no such
	// latch.
	Await(ctx context.Context, name, id string) (Reply, error)

	// Lost returns a channel that is closed when the store has reported that the session is over. A
	// store whose leases do not depend on a session never closes it.
	Lost() <-chan struct{}

	// Close ends the session and with it all its grants and places. If the store cannot be reached,
	// they expire. It may be called more than once.
	Close(ctx context.Context) error
}

// Mode is how much of a name a request wants.
type Mode uint8

// The modes. Exclusive and Shared requests of one name exclude each other (a mutex is an exclusive
// request; so is a writer); Permits makes the name a semaphore.
const (
	Exclusive Mode = 1 + iota
	Shared
	Permits
)

// Kind is what a name is used as. While it is in use it refuses other kinds (R9).
type Kind uint8

// The kinds. Unused is the zero Kind: nobody holds, keeps or waits for the name.
const (
	Unused Kind = iota
	Lock
	Semaphore
	Latch
)

// Request is one attempt to get a lock. It stays the same while it is repeated.
type Request struct {
	ID    string // never reused, unguessable, [0-9a-z-], at most 48 bytes
	Name  string // any UTF-8, 1 to MaxName bytes; the store encodes it injectively
	Mode  Mode   //
	N     int    // Permits: how many at once, 1 ≤ N ≤ Limit, if that is given; else 1
	Limit int    // Permits: how many there are, the same for all requests, or 0: as set; else 0

	// ReadWrite says that the caller's lock is a read/write lock. It does not change who gets the
	// lock. Stores that share their locks with other software may have to tell the two apart.
	ReadWrite bool
	Wait      bool // join the queue if it cannot be granted now

	// CallBack is for Exclusive: the session wants to know when another request waits for the grant
	// (R22). A grant that is handed over to a waiter, or adopted, calls nobody back.
	CallBack bool

	MinHold time.Duration // the name stays taken at least this long from the grant
	Info    string        // an encoded Info, at most MaxInfo bytes, for operators and waiters

	// Lease is how long the place and the grant last without a renewal. 0: the session's TTL, which
	// is also the most (R17).
	Lease time.Duration

	// Tokens is for Exclusive: how many tokens the grant takes, 1 to MaxTokens, or with CallBack to
	// MaxCallBackTokens; 0 is 1. The token of the grant is the largest of them, and the others are those
	// just below it (R21). With Kinds.Bounded the grant may have its own token only: see Granted.
	Tokens int
}

// Block returns how many tokens the grant of r takes at most.
func (r *Request) Block() int { return max(r.Tokens, 1) }

// Granted returns how many tokens a grant of r has that was given this token by a store that keeps k: as
// many as r asks for, or with Kinds.Bounded and an odd token, one. The token itself says so. So the
// answer, a repeated answer, a push, a renewal and the record cannot differ, and a grant that another
// session adopts keeps its number.
func (r *Request) Granted(token uint64, k Kinds) int {
	if k.Bounded && token%2 == 1 {
		return 1
	}
	return r.Block()
}

// Reply answers Acquire and Await: granted, or not yet.
type Reply struct {
	// Token is the fencing token of the grant: larger than every earlier one of the
	// name (R3). Zero: not granted.
	Token uint64

	// Stale is for stores whose leases depend on a session that Acquire does not renew. The lease
	// then counts from an earlier proof. Stale is the time from when that proof was sent to when this
	// exchange was sent, sleep of the machine included. Zero: the lease counts from this exchange.
	Stale time.Duration

	// Wake yields at most one value at a time: the token of a grant that the store has handed over,
	// or 0: ask again. The lease of such a grant lasts a full TTL from the store's last answer
	// about this request (Acquire or Renew), not from the hand-over. So a dead waiter delays the
	// queue no longer than its place lasted. The driver discards a late push for an earlier grant of
	// the ID. Wake is nil when the request does not wait. The driver never blocks on it;
	// the channel is valid until the next Acquire of the ID, or Cancel.
	Wake <-chan uint64

	// Retry is when to ask again if Wake yields nothing: when the lease in the way expires. Zero:
	// no reason to ask before the place in the queue is renewed.
	Retry time.Duration

	// Ahead is the number of requests before this one in the queue.
	Ahead int

	// Holder is one of the holders in the way, if the request was not granted. It may be nil.
	Holder *Holder
}

// Hold names a grant, or with Token 0 a place in the queue.
type Hold struct {
	Name, ID string
	Token    uint64

	// Lease is for Renew only: how long the grant or place lasts from now. 0: the session's TTL,
	// which is also the most. Renew never makes a lease end earlier (R17).
	Lease time.Duration
}

// LeaseWithin returns how long a lease lasts in a session with this TTL, if its request asks for asked.
func LeaseWithin(asked, ttl time.Duration) time.Duration {
	if asked <= 0 || asked > ttl {
		return ttl
	}
	return asked
}

// State is what Renew reports about a hold.
type State uint8

// The states. A hold that Renew does not mention is valid: the grant still exists, or the place
// waits and needs to do nothing.
const (
	Gone    State = 1 + iota // a grant: ended. A place: no longer in the queue; ask again
	Granted                  // a place: the lock was handed over, with Token, and renewed
	Waiting                  // a place: still in the queue; Retry and Ahead are current
	Unknown                  // not proved this time
)

// Change is the new state of holds[Index].
type Change struct {
	Index int
	State State
	Token uint64        // Granted
	Retry time.Duration // Waiting: as in Reply
	Ahead int           // Waiting: as in Reply

	// Missing is for a grant that is Gone. True: the store has no record of its name, because the
	// record was evicted or deleted, or the store has lost its data. False: the record exists and
	// shows that the grant has ended, or the store cannot tell.
	Missing bool
}

// Holder describes a grant, or in Record.Waiters a place in the queue, for people.
type Holder struct {
	ID    string
	Mode  Mode
	N     int
	Token uint64        // 0 for a waiter
	Age   time.Duration // since the grant, or since it joined the queue; store's clock; 0: may be unknown
	Left  time.Duration // until lease, kept time or place expires; 0: unknown
	Kept  bool          // released, but the name is kept for a minimum hold
	Info  string        // an encoded Info

	// Partial: of the servers of a quorum that have answered, less than a majority names this grant. It is
	// still being made; or its client has ended while a server was away, and the server's grant ends with
	// its lease; or servers that have it are away.
	Partial bool
}

// MaxWaiters is how many waiters a Record lists; Record.Waiting counts them all.
const MaxWaiters = 100

// Record is the state of one name.
type Record struct {
	Name    string
	Kind    Kind
	Limit   int      // Semaphore
	Set     bool     // Semaphore: the limit was set by SetLimit, and stays
	Count   int64    // Latch: what is left
	Token   uint64   // the highest token given out that the store still knows
	Holders []Holder // in order of their tokens
	Waiters []Holder // the first MaxWaiters of the queue, in order
	Waiting int      // length of the queue

	// Partial is why nobody gets a name without holder: requests that have servers of a quorum, and
	// too few of them ([Holder.Partial]), leave too few to others. The name is in use then. FreeIn is when
	// enough servers are free, unless a grant is renewed, or servers that are away are needed, too.
	Partial []Holder
	FreeIn  time.Duration

	// Damaged says in a few words what is wrong with the record, if it cannot be read; all other
	// fields but Name are zero then. List returns such a record among the others. Inspect returns
	// ErrDamaged.
	Damaged string
}
