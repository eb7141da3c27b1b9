package driver

import (
	"context"
	"time"
)

// A Backend is a store that keeps a lock table. Its methods may be called
// concurrently. The operator's methods (List, Inspect, Break, SetLimit) belong to no
// session: they work on a Backend that nobody has opened a session on.
type Backend interface {
	// Name is the kind of store in one lower-case word: "redis", "sqlite", "memory".
	Name() string

	// Open starts a session: the identity under which one client holds and waits. It
	// must have set up whatever carries wake-ups before it returns, so that no grant
	// can be missed. Errors: ErrUnavailable, ErrRefused, ErrInvalid.
	Open(ctx context.Context, cfg SessionConfig) (Session, error)

	// List returns up to limit records of names in use (held, kept, waited for, or a
	// latch), in byte order of the names, that begin with prefix and come after after.
	// Its cost depends on the names this store knows, never on other data beside them.
	List(ctx context.Context, prefix, after string, limit int) ([]Record, error)

	// Inspect returns the record of one name; the zero Kind says that it is not in use.
	Inspect(ctx context.Context, name string) (Record, error)

	// Break ends the grant of name that has this token, whoever holds it, and in the
	// same step makes sure that every later token is larger, so that the old holder is
	// fenced (R10). It passes the lock on to the line. Token 1 of a latch (what its Await
	// grants) removes the latch, its count and the ids that have counted; who awaits it is
	// told to ask again, and learns ErrGone. ErrGone: no grant has this token.
	Break(ctx context.Context, name string, token uint64) error

	// SetLimit changes the limit of a semaphore in use. Lowering it takes nothing from
	// holders; nothing is granted until they fit again. ErrGone: not in use; ErrKind:
	// in use as something else.
	SetLimit(ctx context.Context, name string, limit int) error

	// Close frees the backend's own resources (connections it opened itself), after
	// its sessions have been closed. It may be called more than once.
	Close() error
}

// SessionConfig is what a client tells the store of itself.
type SessionConfig struct {
	ID   string        // unguessable, unique, [0-9a-z], at most 32 bytes
	TTL  time.Duration // what the session says nothing for this long about may be given away
	Info string        // an encoded Info: whose session this is, for operators
}

// A Session is one client's presence at the store. Its methods may be called
// concurrently, except that calls for one request ID do not overlap (Cancel apart:
// it may overtake an Acquire whose caller has given up).
//
// Every method is one bounded exchange: it returns when the store answered, when ctx
// ends, or when the driver's own limit for a silent store has passed, whichever is
// first, and never waits for another holder (R1). The portable layer bounds ctx.
type Session interface {
	// TTL is what the store really granted; it may differ from what was asked.
	TTL() time.Duration

	// Acquire asks once for what req says; req is the caller's again when it returns. Asking again with the same ID
	// takes no second grant and keeps the place in line (R5); on a grant that stands it
	// refreshes the lease to a full TTL and repeats the token. A request that does not
	// wait writes nothing when it is refused.
	//
	// Errors: ErrKind, ErrInvalid, ErrRefused, ErrClosed are final: nothing was taken.
	// Any other error leaves the outcome open; the caller asks again or cancels. With ErrSpent beside
	// it the caller asks again with another ID, and cancels this one if the error is ErrUncertain. Nor is the ID of a request
	// that does not wait used again once it was refused.
	Acquire(ctx context.Context, req *Request) (Reply, error)

	// Cancel takes the request out of the line, and gives back its grant if it got one
	// (at once: a minimum hold does not apply to a grant that nobody used). It does
	// nothing if there is neither. After Cancel returned nil, no wake-up for the ID follows.
	Cancel(ctx context.Context, name, id string) error

	// Release ends exactly the grant h and passes the lock on. If keep is positive or the
	// grant asked for a minimum hold, the name stays taken, by nobody who could renew
	// it, until the later of both. ErrGone: the grant had already ended (expired, broken,
	// or released before); ErrTaken: it had ended, the name has been granted again since,
	// and somebody holds it now.
	Release(ctx context.Context, h Hold, keep time.Duration) error

	// Renew is the one proof of life: for every grant in holds it sets the lease to a
	// full TTL from now, for every place in line (Token 0) it does the same for the
	// place, all in one exchange (or one per batch of a few hundred). It answers for
	// those whose state is news; see Change. It never revives what had ended: not even
	// when nobody else has taken it. Also called with nothing to renew, at least every
	// third of a TTL, for stores whose session needs it; others return at once.
	// An error means that nothing is proven; a store that proved some and not
	// others reports these as Unknown.
	// A hold whose record is damaged is Gone; the others are renewed all the same (R15).
	Renew(ctx context.Context, holds []Hold) ([]Change, error)

	// Downgrade turns the exclusive grant h into a shared one, with the same token and
	// without a moment in which another writer could enter, and lets in the readers
	// at the head of the line. ErrGone, ErrTaken as for Release.
	Downgrade(ctx context.Context, h Hold) error

	// Adopt makes this session answer for the grant h, which another session took, and
	// refreshes its lease. The grant's request ID becomes id, which is this session's and
	// as unique as that of any request, and its Info info; its token stays. From then on h.ID names nothing:
	// neither Renew, Release and Cancel of it nor the end of the old session touch
	// the grant. Adopting again with the same h and id succeeds and refreshes (R5).
	// ErrGone, ErrTaken as for Release; ErrInvalid: id is malformed, or it stands for
	// another grant or place of the name.
	Adopt(ctx context.Context, h Hold, id, info string) error

	// SetCount creates the latch with count n, and reports whether it did: a latch that
	// exists keeps its count. ErrKind: the name is in use as something else.
	SetCount(ctx context.Context, name string, n int64) (bool, error)

	// CountDown takes one from the latch, once for each id however often it is
	// called, and returns what is left. Below zero it does not go. ErrGone: no such latch.
	CountDown(ctx context.Context, name, id string) (int64, error)

	// Await asks once whether the latch has reached zero: granted (with Token 1), or
	// not yet. Not yet leaves an interest, which is woken at zero and when the latch is removed. It is
	// no place in line, so Renew does not know it: who waits asks again every third of
	// a TTL, which refreshes it and makes up for a lost wake-up (R11). It lasts a TTL or
	// longer; Cancel and the session's end end it. ErrGone: no such latch.
	Await(ctx context.Context, name, id string) (Reply, error)

	// Lost is closed when the store has said that the session is over. A store whose
	// leases stand each for itself never closes it.
	Lost() <-chan struct{}

	// Close ends the session and with it everything it holds or waits for. Best effort:
	// what the store did not hear runs out by itself. It may be called more than once.
	Close(ctx context.Context) error
}

// Mode is how much of a name a request wants.
type Mode uint8

// The modes. Exclusive and Shared requests of one name see each other (a mutex is an
// exclusive request; so is a writer); Permits makes the name a semaphore.
const (
	Exclusive Mode = 1 + iota
	Shared
	Permits
)

// Kind is what a name is in use as. While it is in use it refuses other kinds (R9).
type Kind uint8

// The kinds. Unused is the zero Kind: nobody holds, keeps or waits for the name.
const (
	Unused Kind = iota
	Lock
	Semaphore
	Latch
)

// Request is a contender's wish, repeated word for word while it waits.
type Request struct {
	ID    string // unique for life, unguessable, [0-9a-z-], at most 48 bytes
	Name  string // any UTF-8, 1 to MaxName bytes; the store encodes it injectively
	Mode  Mode   //
	N     int    // Permits: how many at once, 1 ≤ N ≤ Limit; else 1
	Limit int    // Permits: how many there are; the same for everyone; else 0

	// ReadWrite says that the caller's lock is a read/write lock. It changes nothing in who may have
	// what; stores that share their locks with other software may have to tell the two apart.
	ReadWrite bool
	Wait      bool          // join the line if it cannot be granted now
	MinHold   time.Duration // the name stays taken this long from the grant, come what may
	Info      string        // an encoded Info, at most MaxInfo bytes, for operators and waiters
}

// Reply answers Acquire and Await: granted, or not yet.
type Reply struct {
	// Token is the fencing token of the grant: larger than every earlier one of the
	// name (R3). Zero: not granted.
	Token uint64

	// Stale is how much earlier than this exchange was sent the proof lies that the grant's
	// lease counts from, sleep of the machine included; for stores whose leases hang on a
	// session that Acquire itself does not refresh. Zero: it counts from this exchange.
	Stale time.Duration

	// Wake yields at most one value at a time: the token of a grant that the store has
	// handed over, or 0: ask again. A grant handed over stands for a full TTL counted
	// from the store's last answer about this request (Acquire or Renew), not from the
	// hand-over: so a dead waiter stalls the line no longer than its own place lasted.
	// What was pushed for an earlier grant of the ID and arrives late is not delivered.
	// Wake is nil when the request does not wait; the driver never blocks on it, and
	// the channel is good until the next Acquire of the ID, or Cancel.
	Wake <-chan uint64

	// Retry is when to ask again if Wake stays silent: when the lease in the way runs
	// out. Zero: no reason to ask before the place in line is renewed.
	Retry time.Duration

	// Ahead is how many requests stand before this one in the line.
	Ahead int

	// Holder is one of those in the way, when not granted. It may be nil.
	Holder *Holder
}

// Hold names a grant, or with Token 0 a place in line.
type Hold struct {
	Name, ID string
	Token    uint64
}

// State is what a Renew has to tell of a hold.
type State uint8

// The states. A hold that Renew does not mention is alive: it was granted and still is,
// or it waits and needs to do nothing.
const (
	Gone    State = 1 + iota // a grant: ended. A place: no longer in line; ask again
	Granted                  // a place: the lock was handed over, with Token, and renewed
	Waiting                  // a place: still in line; Retry and Ahead are fresh
	Unknown                  // not proven this time
)

// Change is news of holds[Index].
type Change struct {
	Index int
	State State
	Token uint64        // Granted
	Retry time.Duration // Waiting: as in Reply
	Ahead int           // Waiting: as in Reply

	// Missing says of a grant that is Gone that the store has no record of its name any
	// more: the record was evicted or deleted, or the store has lost its data. False: the
	// record is there and says that the grant has ended, or the store cannot tell.
	Missing bool
}

// Holder describes a grant, or in Record.Waiters a place in line, for people.
type Holder struct {
	ID    string
	Mode  Mode
	N     int
	Token uint64        // 0 for a waiter
	Age   time.Duration // since the grant, or since it joined the line; store's clock
	Left  time.Duration // until the lease, the kept time or the place runs out; 0 if another program's is not known
	Kept  bool          // released, but the name is kept for a minimum hold
	Info  string        // an encoded Info
}

// MaxWaiters is how many waiters a Record lists; Record.Waiting counts them all.
const MaxWaiters = 100

// Record is the state of one name.
type Record struct {
	Name    string
	Kind    Kind
	Limit   int      // Semaphore
	Count   int64    // Latch: what is left
	Token   uint64   // the highest token given out that the store still knows
	Holders []Holder // in order of their tokens
	Waiters []Holder // the first MaxWaiters of the line, in order
	Waiting int      // length of the line

	// Damaged says what is wrong with the record, in a few words, if it cannot be read; all
	// but Name is zero then. List returns such a record among the others. Inspect
	// returns ErrDamaged.
	Damaged string
}
