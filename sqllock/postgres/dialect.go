package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// now is the server's clock in microseconds at the start of a statement; it is constant during the
// statement.
const now = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"

// timeless is a digest of the columns line and more without their times, which have 16 digits.
const timeless = "md5(regexp_replace(line || more, ' [0-9]{16}', '', 'g'))"

// Dialect returns the dialect of PostgreSQL 12 and later. It works with pools of
// github.com/jackc/pgx/v5/stdlib, under every isolation level.
func Dialect() sqllock.Dialect { return newDialect(now) }

type dialect struct {
	clock       *strings.Replacer
	try, wait   string
	hand, leave string
	renew, save string

	pooled atomic.Bool // there is a pooler, and pgx would prepare statements
	direct atomic.Bool // there is no pooler

	began time.Time
	muted atomic.Int64 // no notifications until then, as time since began

	idle time.Duration // how long a process without waiters keeps listening
}

func newDialect(now string) *dialect {
	d := &dialect{clock: strings.NewReplacer("{now}", now, "{timeless}", timeless),
		idle: 3 * time.Second, began: time.Now()}
	d.try, d.wait = d.clock.Replace(tryText), d.clock.Replace(waitText)
	d.hand, d.leave, d.renew = d.clock.Replace(handText), d.clock.Replace(leaveText), d.clock.Replace(renewText)
	d.save = saveText()
	return d
}

// Name implements [sqllock.Dialect].
func (d *dialect) Name() string { return "postgres" }

// Migrations implements [sqllock.Dialect]. Half of each page is left free, so that a row's new
// version fits next to the old one and no index changes. A queue of some forty waiters stays in its row:
// by default PostgreSQL compresses more than 2 kB, and stores it apart, in each statement.
func (d *dialect) Migrations() [][]string {
	return [][]string{{
		`CREATE TABLE IF NOT EXISTS hf_meta (
	one smallint PRIMARY KEY, version integer NOT NULL, floor bigint NOT NULL, swept bigint NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS hf_lock (
	name bytea PRIMARY KEY, kind smallint NOT NULL, lim integer NOT NULL, counter bigint NOT NULL,
	token bigint NOT NULL, ver bigint NOT NULL, at bigint NOT NULL, hid text NOT NULL, hsession text NOT NULL,
	since bigint NOT NULL, expires bigint NOT NULL, keep bigint NOT NULL, busy bigint NOT NULL, kept smallint NOT NULL,
	info text NOT NULL, waiting integer NOT NULL, due bigint NOT NULL, line text NOT NULL, more text NOT NULL
) WITH (fillfactor = 50, toast_tuple_target = 8160)`,
		`CREATE TABLE IF NOT EXISTS hf_done (name bytea NOT NULL, id text NOT NULL, PRIMARY KEY (name, id))`,
	}, {
		`CREATE TABLE IF NOT EXISTS hf_secret (one smallint PRIMARY KEY, secret bytea NOT NULL)`,
		secretRow,
	}}
}

// HistoryTable implements [sqllock.Dialect]. An identity column needs no right to its sequence. A
// column of type text could not have every text.
func (d *dialect) HistoryTable() []string {
	return []string{`CREATE TABLE IF NOT EXISTS hf_history (
	name bytea NOT NULL, seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY, digest bytea NOT NULL, at bigint NOT NULL,
	entry bytea NOT NULL, PRIMARY KEY (name, seq), UNIQUE (name, digest))`}
}

// Rows implements [sqllock.Dialect].
func (d *dialect) Rows() []string { return []string{secretRow} }

// Tables implements [sqllock.Dialect].
func (d *dialect) Tables() []string {
	return []string{"hf_meta", "hf_lock", "hf_done", "hf_secret", "hf_history"}
}

// Text implements [sqllock.Dialect].
func (d *dialect) Text(statement string) string {
	statement = d.clock.Replace(statement)
	for verb, from := range map[string]string{"UPDATE": " FROM ", "DELETE": " USING "} {
		if strings.HasPrefix(statement, verb) {
			statement = strings.Replace(statement, " WHERE ", from+"(SELECT "+bounded+") AS bound WHERE ", 1)
		}
	}
	// it may wait for another transaction's uncommitted row
	if begin, values, insert := strings.Cut(statement, " VALUES ("); insert {
		last := strings.LastIndexByte(values, ')') // the clock has parentheses, too
		statement = begin + " SELECT " + values[:last] + " FROM (SELECT " + bounded + ") AS bound" + values[last+1:]
	}
	if !strings.HasPrefix(statement, "SELECT") {
		statement += " RETURNING " + durable
	}
	var b strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// Inline implements [sqllock.Dialect]. Arguments cost no extra round trip. But behind a pooler
// statements must not be prepared, since the next one may go to another connection.
func (d *dialect) Inline(text string, args []any) (string, []any) {
	if d.pooled.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	return text, args
}

// Prepare implements [sqllock.Dialect]. It returns "", since pgx prepares statements itself.
func (d *dialect) Prepare(string, []any) string { return "" }

// Bind implements [sqllock.Dialect].
func (d *dialect) Bind(args []any) []any { return args }

// Transactions implements [sqllock.Dialect]. Several statements without arguments take one round
// trip.
func (d *dialect) Transactions() sqllock.Transactions { return transactions }

var transactions = sqllock.Transactions{Tells: true, Lossy: true, Begin: []string{fmt.Sprintf(
	"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d; SELECT %s",
	sqllock.TxIdleLimit.Milliseconds(), bounded)}}

// bounded limits a statement's wait for a row, unless a limit is set already.
var bounded, boundedBriefly = boundedBy(sqllock.RowWait), boundedBy(50 * time.Millisecond)

func boundedBy(limit time.Duration) string {
	return fmt.Sprintf("CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', '%d', true) END",
		limit.Milliseconds())
}

// Reserved implements [sqllock.Dialect]. A plan made for a small table, or for old statistics,
// would read the whole table each time. Behind a pooler these settings would affect other clients.
func (d *dialect) Reserved() sqllock.Reserved {
	if !d.direct.Load() {
		return sqllock.Reserved{}
	}
	return sqllock.Reserved{
		Begin:    "SET enable_seqscan = off; SET plan_cache_mode = force_custom_plan",
		Renewing: fmt.Sprintf("SET lock_timeout = %d", sqllock.RowWait.Milliseconds()),
		Working:  "SET lock_timeout = 20",
		Hurrying: func(limit time.Duration) string {
			return fmt.Sprintf("SET lock_timeout = %d", max(20, limit.Milliseconds()/10*10)) // few different statements
		},
	}
}

// Bounded implements [sqllock.Dialect]. Text has added the usual limit.
func (d *dialect) Bounded(text string, brief bool) string {
	if brief {
		return strings.ReplaceAll(text, bounded, boundedBriefly)
	}
	return text
}

// InsertNew implements [sqllock.Dialect].
func (d *dialect) InsertNew() (begin, end string) { return "INSERT", " ON CONFLICT DO NOTHING" }

// sqlState is the interface of the server's errors in most drivers.
type sqlState interface {
	error
	SQLState() string
}

// Fault implements [sqllock.Dialect].
func (d *dialect) Fault(err error) sqllock.Fault {
	var said sqlState
	var connecting *pgconn.ConnectError
	atFirst := errors.As(err, &connecting) // nothing has been sent
	if errors.As(err, &said) {
		switch code := said.SQLState(); {
		case atFirst && (strings.HasPrefix(code, "57") || strings.HasPrefix(code, "08")): // shutdown, crash, connection
			return sqllock.NotDone
		case code == "54000" && strings.Contains(said.Error(), "NOTIFY queue"):
			d.mute()
			return sqllock.Again
		case again(said):
			return sqllock.Again
		case code == "22003": // a number is out of range
			return sqllock.OutOfRange
		case !atFirst && (code == "42P01" || code == "42703" || code == "3F000"): // no table, column, schema
			return sqllock.NoSchema
		case strings.HasPrefix(code, "53"), code == "57P03", code == "57P05", code == "25P03", code == "25P04":
			return sqllock.NotDone // no resources, not ready, silent for too long
		case code == "57P01", code == "57P02", code == "57014", strings.HasPrefix(code, "08"): // as above, or cancelled
			return sqllock.Unknown
		case code == "42501":
			return sqllock.Denied
		}
		return sqllock.Refused
	}
	if ofMySQL(err) {
		return sqllock.Refused
	}
	if atFirst || errors.Is(err, sqldriver.ErrBadConn) || pgconn.SafeToRetry(err) {
		return sqllock.NotDone
	}
	return sqllock.Unknown
}

// ofMySQL reports whether err is an answer of MySQL or MariaDB, whose driver is not linked here.
func ofMySQL(err error) bool { return answerOfMySQL.MatchString(err.Error()) }

var answerOfMySQL = regexp.MustCompile(`^Error [0-9]{4} \([0-9A-Z]{5}\): `)

// Advise implements [sqllock.Dialect].
func (d *dialect) Advise(err error, creates bool) string {
	var said sqlState
	if !errors.As(err, &said) {
		if ofMySQL(err) {
			return "the pool leads to MySQL or MariaDB, and the dialect is that of PostgreSQL: use mysql.Dialect"
		}
		return ""
	}
	switch code := said.SQLState(); {
	case code == "25006":
		return "the server is a standby, or default_transaction_read_only is on: connect to the primary, with several hosts by target_session_attrs=read-write"
	case code == "42501" && creates:
		return "the role needs the right to create tables (CREATE on the schema), or an administrator creates them"
	case code == "42501":
		return "the role needs SELECT, INSERT, UPDATE and DELETE on hf_meta, hf_lock, hf_done and hf_history, and SELECT on hf_secret"
	case code == "53100":
		return "free some space on the server's disk"
	case code == "53300":
		return "the server has no connection left: raise max_connections, or use fewer"
	case strings.HasPrefix(code, "28"):
		return "check the user, the password and the server's pg_hba.conf"
	}
	return ""
}

// again reports whether an error means a conflict with another transaction, or a change of the
// tables.
func again(said sqlState) bool {
	switch said.SQLState() {
	case "40001", "40P01", "55P03": // serialization, deadlock, lock not available
		return true
	case "26000", "42P05": // prepared on another connection, or dropped; it is prepared again
		return true
	case "23505", "42P07", "42710": // others create the tables at the same time
		return true
	case "0A000", "XX000":
		return strings.Contains(said.Error(), "cached plan must not change") ||
			strings.Contains(said.Error(), "tuple concurrently")
	}
	return false
}

// Check implements [sqllock.Dialect]. It detects a pooler, which gives its clients other process
// IDs than the server's.
func (d *dialect) Check(ctx context.Context, db *sql.DB) (c sqllock.Circumstances, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return c, err
	}
	defer func() { _ = conn.Close() }()
	const ask = "SELECT current_setting('transaction_isolation'), pg_backend_pid()"
	var level, pid string
	err = raw(conn, func(p *pgx.Conn) error {
		answer, err := simple(ctx, p, ask)
		if err != nil {
			return err
		}
		level, pid = answer[0], answer[1]
		direct := pid == strconv.Itoa(int(p.PgConn().PID()))
		d.direct.Store(direct)
		if !direct && p.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			d.pooled.Store(true)
		}
		return nil
	})
	if errors.Is(err, errOtherDriver) {
		err = conn.QueryRowContext(ctx, ask).Scan(&level, &pid)
	}
	c.Serial = level != "read committed" && level != "read uncommitted"
	return c, err
}
