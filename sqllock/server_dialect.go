package sqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Dialect is a kind of database server: its statements, its way of waking those who wait, its
// errors. Packages mysql and postgres make them; what they have in common is here.
type Dialect interface {
	// Name is the store's name: "mysql", "postgres".
	Name() string

	// Migrations are the statements that make the tables: the n-th list makes version n+1 of
	// version n. Version 0 is nothing. Each may be run again.
	Migrations() [][]string

	// Tables are the names of what Migrations make.
	Tables() []string

	// Rows are statements that put in rows which Migrations have put in and somebody has deleted.
	Rows() []string

	// Text turns a statement into the server's form: ? stands for an argument, {now} for the
	// server's clock in microseconds at the statement's begin.
	Text(statement string) string

	// Inline writes the arguments into a statement, if a statement with arguments costs this
	// server's driver more than one round trip.
	Inline(text string, args []any) (string, []any)

	// Prepare is the form in which a statement with such arguments is prepared, and Bind are the arguments that it is run
	// with then. "": it had better not be, since the driver does so itself.
	Prepare(text string, args []any) string
	Bind(args []any) []any

	// Transactions is known when Check has looked.
	Transactions() Transactions

	// Kept are statements for the connection that is kept, which nobody else gets afterwards. It is known when Check has
	// looked.
	Kept() Kept

	// Bounded is a statement, in the form in which it is sent, that waits for a row for RowWait at most, or hardly at all if
	// that is to be brief. It is known when Check has looked; text where the server cannot be told so in the statement.
	Bounded(text string, brief bool) string

	// InsertNew is "INSERT" and what follows the values, to leave a row alone that is there.
	InsertNew() (begin, end string)

	// Fault says what an error means.
	Fault(err error) Fault

	// Advise says what to do about an error of the server, in a few words; "": nothing is known.
	Advise(err error) string

	// Check looks at the server when a Server is opened. An error wraps driver.ErrRefused.
	Check(ctx context.Context, db *sql.DB) (Circumstances, error)

	// Take is Acquire of an exclusive request in one statement, if that is enough.
	Take(ctx context.Context, q Querier, t *Take) (Taken, error)

	// Hand is Release of an exclusive grant in one statement, if that is enough.
	Hand(ctx context.Context, q Querier, h *Handing) (Handed, error)

	// Renew sets the leases of exclusive grants in one statement and returns how many.
	Renew(ctx context.Context, q Querier, names []string, ids []string, tokens []int64, ttl int64) (int, error)

	// Leave takes a place out of the line in one statement, if nobody can be let in by that. False: more
	// has to be known, and nothing was done.
	Leave(ctx context.Context, q Querier, name, id string) (bool, error)

	// Save writes rows, each if it still has the version Was, and tells its Rings in the same statement
	// where Announce does; it waits for no row that another has locked, if it can. It returns which were
	// written; nil: some were, nobody knows which.
	Save(ctx context.Context, q Querier, writes []Write) (saved []bool, err error)

	// Announce is called in the transaction that grants to waiters of other Servers, and Wake
	// after it, on a connection that was made at opened at the latest. What is lost costs time only.
	Announce(ctx context.Context, q Querier, rings []Ring) error
	Wake(ctx context.Context, q Querier, opened time.Time, rings []Ring) error

	// OpenBell makes what wakes those who wait. An error wraps driver.ErrUnavailable; a bell that
	// cannot work here is returned as nil, with the reason.
	OpenBell(ctx context.Context, b BellConfig) (bell Bell, reason string, err error)
}

// Querier is a pool, a connection or a transaction. Statements are in Text's form.
type Querier interface {
	Exec(ctx context.Context, text string, args ...any) (sql.Result, error)
	Query(ctx context.Context, text string, args ...any) (*sql.Rows, error)

	// Often is the same for statements that are asked again and again, with the same text: they are
	// prepared where that is of use.
	Often() Querier
}

// Kept are statements for the connection that is kept; "": there is nothing to do.
type Kept struct {
	Begin string // is the first

	// Renewing has later statements wait for a row for RowWait at most, and Working for much less, where the server can be
	// told so.
	Renewing, Working string

	// Hurrying has them wait for limit at most, or not at all, where the server can be told so.
	Hurrying func(limit time.Duration) string
}

// Fault is what an error of the server means for what was asked.
type Fault int

// The faults.
const (
	Unknown    Fault = iota // it may have been done or not
	NotDone                 // it has not been done: the server cannot serve now
	Again                   // it has not been done: another transaction was in the way
	Refused                 // it has not been done, and will not be
	NoSchema                // the tables are not there, or not ours
	Unprepared              // it has not been done, since it was prepared or was to be
	OutOfRange              // it has not been done: a number of the row is too large or too small
)

// Circumstances are what a server was found to be like.
type Circumstances struct {
	// Serial says that single statements have to run in transactions that ask for READ COMMITTED.
	Serial bool

	// Lonely says why nobody may be woken here, "" if they may: waiters poll.
	Lonely string

	// Room is how many bytes of text about those who hold a name and wait for it the server takes;
	// 0: MaxLine. It is never more than that.
	Room int
}

// Write is a row to be written.
type Write struct {
	Name   string
	Was    int64 // its version
	Values []any // of Columns: int, int64 and string
	Rings  []Ring
}

// Columns are the columns of hf_lock that Write.Values are of.
func Columns() []string { return slices.Clone(writtenColumns) }

// Take is what an exclusive request says. Times are microseconds.
type Take struct {
	Name, ID, Session string
	TTL, MinHold      int64
	Info              string // in the form of an item's field
	Floor             int64
	Wait              bool
	Room              int64 // in bytes: a line that is longer is not joined without a further look
}

// Taken answers Take. The zero Taken says that more has to be known: nothing was done.
type Taken struct {
	Token  int64 // granted
	Queued bool
	Ahead  int
	Retry  time.Duration
	Holder *driver.Holder // nil: not told
}

// Handing is a grant that ends. Times are microseconds.
type Handing struct {
	Name, ID string
	Token    int64
	Floor    int64
	Server   string // the releasing Server's id
	Window   int64  // a waiter that has shorter to live than this is not handed the lock blindly
}

// Handed answers Hand. The zero Handed says that more has to be known: nothing was done.
type Handed struct {
	Done bool
	To   *Ring // who is to be told by Wake, or here; nil: nobody, or told already
}

// Ring is news for a waiter: Token 0 tells it to ask again.
type Ring struct {
	Name    string
	Server  string // of the waiter
	Session string
	ID      string
	Token   uint64

	Mark uint32 // mysql: stands for Server, where that is not known
}

// Bell is how those who wait here are woken. Its methods may be called concurrently.
type Bell interface {
	// Wait says that somebody waits here from now on.
	Wait()

	// Close ends it.
	Close() error
}

// BellConfig is what a bell works with.
type BellConfig struct {
	DB     *sql.DB // to wait on
	Server string  // this Server's id: digits and lower-case letters

	// Keep runs f on the connection that is kept for such things; opened is when it was connected.
	Keep func(ctx context.Context, f func(q Querier, opened time.Time) error) error

	// Heard is called with what another Server has told, and may be called for one that does
	// not wait.
	Heard func(Ring)

	// Look is called when something may have happened, nobody knows what.
	Look func(ctx context.Context) error

	// Waiting returns those who wait here, or are about to, by name, and have not been told.
	Waiting func() map[string]Waiters

	// Sleep is the longest that a lost wake-up may cost.
	Sleep time.Duration
}

// Waiters are the ids of requests that wait for a name: for all of it, for a share or permits, or for
// the latch to open.
type Waiters struct {
	Alone, Group, Latch []string
}
