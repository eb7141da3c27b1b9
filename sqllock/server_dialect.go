package sqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Dialect is a kind of database server: its statements, its errors, and how it wakes waiters.
// Packages mysql and postgres implement it.
type Dialect interface {
	// Name returns the store's name: "mysql", "postgres".
	Name() string

	// Migrations returns the statements that create the tables: the n-th list turns version n into
	// version n+1. Version 0 has no tables. Each list may run again.
	Migrations() [][]string

	// HistoryTable returns the statements that create the table of the histories, which has no part in
	// the version of the tables. They may run again.
	HistoryTable() []string

	// Tables returns the names of the tables.
	Tables() []string

	// Rows returns statements that insert the rows of Migrations again, if somebody has deleted
	// them.
	Rows() []string

	// Text turns a statement into the server's form: ? is an argument, {now} is the server's clock
	// at the statement's start, in microseconds, {timeless} is a digest of the grants and the queue
	// that a renewal does not change.
	Text(statement string) string

	// Inline writes the arguments into a statement, if the server's driver needs more than one
	// round trip for a statement with arguments.
	Inline(text string, args []any) (string, []any)

	// Prepare returns the form of a statement to prepare, and Bind its arguments. "": do not
	// prepare it, since the driver does so itself.
	Prepare(text string, args []any) string
	Bind(args []any) []any

	// Transactions returns how transactions run. Call Check first.
	Transactions() Transactions

	// Reserved returns statements for the reserved connection, which is never returned to the pool.
	// Call Check first.
	Reserved() Reserved

	// Bounded returns a statement, in the form in which it is sent, that waits for a row at most
	// RowWait, or hardly at all if brief. It returns text where the server has no such limit. Call
	// Check first.
	Bounded(text string, brief bool) string

	// Tx returns a transaction of the application; nil: it is of no type that the dialect knows.
	Tx(tx any) Tx

	// InTx turns a statement, in the form that Text expects, into one for the application's
	// transaction. It changes none of its settings but its durability.
	InTx(statement string, args []any) (string, []any)

	// Unseen reports whether t cannot see the row of name, which exists, because t's snapshot is
	// older. False: another transaction has locked the row.
	Unseen(ctx context.Context, t Tx, name string) (bool, error)

	// InsertNew returns "INSERT", and the text after the values, of a statement that keeps an
	// existing row.
	InsertNew() (begin, end string)

	// Fault returns what an error means.
	Fault(err error) Fault

	// Advise returns a few words on how to fix an error of the server; "": no advice. creates: the
	// statement creates tables.
	Advise(err error, creates bool) string

	// Check examines the server when a Server is opened. Its errors wrap driver.ErrRefused.
	Check(ctx context.Context, db *sql.DB) (Circumstances, error)

	// Take is Acquire of an exclusive request in one statement, where one suffices.
	Take(ctx context.Context, q Querier, t *Take) (Taken, error)

	// Hand is Release of an exclusive grant in one statement, where one suffices.
	Hand(ctx context.Context, q Querier, h *ReleaseReq) (Handed, error)

	// Renew renews exclusive grants in one statement and returns how many.
	Renew(ctx context.Context, q Querier, names []string, ids []string, tokens []int64, ttl int64) (int, error)

	// Leave removes a place from the queue in one statement, if that lets nobody in. False: nothing
	// was done, and the caller must read the row.
	Leave(ctx context.Context, q Querier, name, id string) (bool, error)

	// Save writes each row that still has version Was. Where Announce does something, the same
	// statement sends the Rings. If possible, it waits for no locked row. It returns which rows
	// were written; nil: some were, nobody knows which.
	Save(ctx context.Context, q Querier, writes []Write) (saved []bool, err error)

	// Announce is called in the transaction that grants to waiters of other Servers. Wake is called
	// after it: for all Rings if Announce does nothing, else for those of Servers on this host that
	// were left out and could not be reached. Wake's connection was made at opened or earlier. A lost
	// wake-up costs only time.
	Announce(ctx context.Context, q Querier, rings []Ring) error
	Wake(ctx context.Context, q Querier, opened time.Time, rings []Ring) error

	// OpenBell starts what wakes waiters here. Its errors wrap driver.ErrUnavailable. If waking
	// cannot work here, it returns nil and the reason.
	OpenBell(ctx context.Context, b BellConfig) (bell Bell, reason string, err error)
}

// Querier is a pool, a connection or a transaction. Statements have Text's form.
type Querier interface {
	Exec(ctx context.Context, text string, args ...any) (sql.Result, error)
	Query(ctx context.Context, text string, args ...any) (*sql.Rows, error)

	// Prepared is for frequent statements with constant text. It prepares them where that helps.
	Prepared() Querier
}

// Reserved are statements for the reserved connection; "": nothing to do.
type Reserved struct {
	Begin string // runs first

	// After Renewing, statements wait for a row at most RowWait; after Working much less. Both need
	// a server with such a limit.
	Renewing, Working string

	// Hurrying limits that wait to limit, or to nothing, where the server has such a limit.
	Hurrying func(limit time.Duration) string
}

// Fault is the meaning of a server's error for a statement.
type Fault int

// The faults.
const (
	Unknown    Fault = iota // the statement may have been executed
	NotDone                 // not executed: the server cannot serve now
	Again                   // not executed: conflict with another transaction
	Refused                 // not executed, and never will be
	Denied                  // as Refused: the user lacks a right
	NoSchema                // the tables do not exist, or are not ours
	Unprepared              // not executed: preparing failed
	OutOfRange              // not executed: a number in the row is too large or too small
)

// Circumstances are properties of a server.
type Circumstances struct {
	// Serial means that single statements must run in READ COMMITTED transactions.
	Serial bool

	// NoPush is the reason why waiters cannot be woken here and must poll; "": they can.
	NoPush string

	// MaxText is the server's limit for the text of one name's grants and queue, in bytes; 0:
	// MaxLine, which it never exceeds.
	MaxText int
}

// Write is a row to be written.
type Write struct {
	Name   string
	Was    int64 // its version
	Values []any // in the order of Columns: int, int64 and string
	Rings  []Ring
}

// Columns returns the columns of hf_lock in the order of Write.Values.
func Columns() []string { return slices.Clone(writtenColumns) }

// Take is an exclusive request. Times are microseconds.
type Take struct {
	Name, ID, Session string
	TTL, MinHold      int64
	Tokens            int64  // how many the grant takes; Token is the largest of them, see record.mint
	Info              string // escaped, as a field of an item
	Floor             int64
	Wait              bool
	MaxText           int64 // in bytes: a statement does not join a longer queue
}

// Taken answers Take. The zero Taken means that nothing was done, and the caller must read the row.
type Taken struct {
	Token  int64 // 0: not granted
	Queued bool
	Ahead  int
	Retry  time.Duration
	Holder *driver.Holder // nil: unknown
}

// ReleaseReq is the release of an exclusive grant. Times are microseconds.
type ReleaseReq struct {
	Name, ID string
	Token    int64
	Floor    int64
	Server   string   // the releasing Server's id
	Near     []string // the Servers on this host: the caller notifies their waiters
	Window   int64    // shortest remaining time of a waiter that gets the lock without a look at the row
}

// Handed answers Hand. The zero Handed means that nothing was done, and the caller must read the
// row.
type Handed struct {
	Done bool
	To   *Ring // waiter to notify; nil: nobody, or notified already
}

// Ring is a notification for a waiter. Token 0 means: ask again.
type Ring struct {
	Name    string
	Server  string // of the waiter
	Session string
	ID      string
	Token   uint64

	Mark uint32 // mysql: stands for Server, if that and ID are unknown
}

// Bell receives the notifications for waiters here. Its methods may be called concurrently.
type Bell interface {
	// Wait announces that a request waits here from now on.
	Wait()

	// Close stops the Bell.
	Close() error
}

// BellConfig configures a Bell.
type BellConfig struct {
	DB     *sql.DB // to wait on
	Server string  // this Server's id: digits and lower-case letters

	// Keep runs f on the reserved connection, which was connected at opened or earlier.
	Keep func(ctx context.Context, f func(q Querier, opened time.Time) error) error

	// Heard handles a notification from another Server. The request may no longer wait.
	Heard func(Ring)

	// Look checks all waiters. A Bell calls it if something unknown may have happened.
	Look func(ctx context.Context) error

	// Waiting returns requests that wait here, or are about to, by name, without those that have
	// been notified of a grant.
	Waiting func() map[string]Waiters

	// Sleep bounds the delay after a lost wake-up.
	Sleep time.Duration
}

// Waiters are the IDs of requests that wait for a name: exclusively, for a share or permits, or for
// the latch.
type Waiters struct {
	Alone, Group, Latch []string
}
