package mysql

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// now is the server's clock in microseconds at the start of a statement. It does not use local
// time, in which one hour a year occurs twice.
const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// timeless is a digest of the columns line and more without their times, which have 16 digits.
// MySQL has no regular expressions for binary text.
const timeless = "MD5(REGEXP_REPLACE(CONVERT(CONCAT(line, more) USING latin1), ' [0-9]{16}', ''))"

// Dialect returns the dialect of MySQL 8 and MariaDB. It works with any pool of
// github.com/go-sql-driver/mysql and nearly all of its parameters. Settings that would break
// exclusion are refused when a Server is opened, with the reason: autocommit=0, READ UNCOMMITTED,
// the sql_mode EMPTY_STRING_IS_NULL, a max_allowed_packet below 1 MiB, SET timestamp, and a few
// more.
func Dialect() sqllock.Dialect { return newDialect(now) }

type dialect struct {
	try, wait, free, joinBlind, joinSeen, freeing, handing, handingSeen, leave, holder string

	clock *strings.Replacer
	last  *last
	idle  atomic.Int64 // wait_timeout of the pool's connections, in seconds; 0: unknown

	bounds  atomic.Bool // the server accepts a limit for one statement: it is MariaDB
	returns atomic.Bool // an INSERT may return rows: it is MariaDB 10.5
	shows   atomic.Bool // so may one that hands over

	mu    sync.Mutex
	peers map[time.Time]*peers // by the time of connection
}

func newDialect(now string) *dialect {
	d := &dialect{clock: strings.NewReplacer("{now}", now, "{timeless}", timeless),
		peers: map[time.Time]*peers{}, last: newLast()}
	try, wait := takeTexts()
	d.try, d.wait, d.leave = d.Text(try), d.Text(wait), d.Text(leaveText)
	d.free, d.joinBlind, d.joinSeen, d.freeing, d.handing = d.Text(freeText), d.Text(joinBlindText), d.Text(
		joinSeenText), d.Text(freeingText), d.Text(handingText)
	d.handingSeen, d.holder = d.Text(handingSeenText), d.Text(holderText)
	return d
}

// Name implements [sqllock.Dialect].
func (d *dialect) Name() string { return "mysql" }

// Migrations implements [sqllock.Dialect]. Names are compared byte for byte.
//
// info is not a BLOB, since MariaDB 10.11 confuses VALUES(info) of a BLOB with the value assigned
// before. It is long enough for a fully escaped Info.
func (d *dialect) Migrations() [][]string {
	return [][]string{{
		`CREATE TABLE IF NOT EXISTS hf_meta (
	one TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL, floor BIGINT NOT NULL, swept BIGINT NOT NULL
) ENGINE=InnoDB`,
		`CREATE TABLE IF NOT EXISTS hf_lock (
	name VARBINARY(512) NOT NULL PRIMARY KEY, kind TINYINT NOT NULL, lim INT NOT NULL, counter BIGINT NOT NULL,
	token BIGINT NOT NULL, ver BIGINT NOT NULL, at BIGINT NOT NULL, hid VARBINARY(48) NOT NULL, hsession VARBINARY(64) NOT NULL,
	since BIGINT NOT NULL, expires BIGINT NOT NULL, keep BIGINT NOT NULL, busy BIGINT NOT NULL, kept TINYINT NOT NULL,
	info VARBINARY(12400) NOT NULL, waiting INT NOT NULL, due BIGINT NOT NULL, line MEDIUMBLOB NOT NULL, more MEDIUMBLOB NOT NULL
) ENGINE=InnoDB`,
		`CREATE TABLE IF NOT EXISTS hf_done (
	name VARBINARY(512) NOT NULL, id VARBINARY(48) NOT NULL, PRIMARY KEY (name, id)
) ENGINE=InnoDB`,
		`CREATE TABLE IF NOT EXISTS hf_bell (
	server VARBINARY(16) NOT NULL PRIMARY KEY, host VARBINARY(300) NOT NULL, user VARBINARY(400) NOT NULL,
	life BIGINT NOT NULL, conn BIGINT NOT NULL
) ENGINE=InnoDB`,
	}}
}

// HistoryTable implements [sqllock.Dialect]. An index begins with seq, since InnoDB needs one to
// number the rows.
func (d *dialect) HistoryTable() []string {
	return []string{`CREATE TABLE IF NOT EXISTS hf_history (
	name VARBINARY(512) NOT NULL, seq BIGINT NOT NULL AUTO_INCREMENT, digest BINARY(32) NOT NULL, at BIGINT NOT NULL,
	entry VARBINARY(4096) NOT NULL, PRIMARY KEY (name, seq), UNIQUE KEY (name, digest), KEY (seq)
) ENGINE=InnoDB`}
}

// Rows implements [sqllock.Dialect].
func (d *dialect) Rows() []string { return nil }

// Tables implements [sqllock.Dialect].
func (d *dialect) Tables() []string {
	return []string{"hf_meta", "hf_lock", "hf_done", "hf_bell", "hf_history"}
}

// Text implements [sqllock.Dialect].
func (d *dialect) Text(statement string) string { return d.clock.Replace(statement) }

// Inline implements [sqllock.Dialect]. Text is sent as hexadecimal digits, which mean the same in
// every sql_mode and character set.
func (d *dialect) Inline(text string, args []any) (string, []any) {
	if len(args) == 0 {
		return text, nil
	}
	b := make([]byte, 0, len(text)+64)
	for _, part := range strings.SplitAfter(text, "?") {
		before, found := strings.CutSuffix(part, "?")
		b = append(b, before...)
		if !found {
			continue
		}
		switch v := args[0].(type) {
		case string:
			b = appendHex(b, []byte(v))
		case []byte:
			b = appendHex(b, v)
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		default:
			panic(fmt.Sprintf("mysql: an argument of type %T", v))
		}
		args = args[1:]
	}
	return string(b), nil
}

// Prepare implements [sqllock.Dialect]. Names are sent as hexadecimal digits, which no character
// set changes; other text is ASCII.
func (d *dialect) Prepare(text string, args []any) string {
	parts := strings.SplitAfter(text, "?")
	for i, arg := range args {
		if _, ok := arg.([]byte); ok {
			parts[i] = strings.TrimSuffix(parts[i], "?") + "UNHEX(?)"
		}
	}
	return strings.Join(parts, "")
}

// Bind implements [sqllock.Dialect].
func (d *dialect) Bind(args []any) []any {
	bound := make([]any, len(args))
	for i, arg := range args {
		if raw, ok := arg.([]byte); ok {
			arg = hex.EncodeToString(raw)
		}
		bound[i] = arg
	}
	return bound
}

func appendHex(b, text []byte) []byte {
	b = append(b, "x'"...)
	b = hex.AppendEncode(b, text)
	return append(b, '\'')
}

// Transactions implements [sqllock.Dialect]. Locking reads see the last commit in every isolation
// level. All versions have wait_timeout, which also applies in a transaction. After the transaction
// it is reset to the pool's value.
func (d *dialect) Transactions() (t sqllock.Transactions) {
	const limit, set = int64(sqllock.TxIdleLimit / time.Second), "SET SESSION wait_timeout = "
	if others := d.idle.Load(); others > limit {
		t.Begin, t.After = []string{set + strconv.FormatInt(limit, 10)}, []string{set + strconv.FormatInt(others, 10)}
	}
	t.Begin = append(t.Begin, "START TRANSACTION")
	return t
}

// Reserved implements [sqllock.Dialect]. A server whose limits are whole seconds is MySQL, not
// MariaDB.
func (d *dialect) Reserved() sqllock.Reserved {
	const limit = "SET SESSION innodb_lock_wait_timeout = "
	k := sqllock.Reserved{Renewing: limit + rowWait, Working: limit + rowWait}
	if d.bounds.Load() {
		k.Working = limit + "0"
	}
	k.Hurrying = func(time.Duration) string { return k.Working }
	return k
}

// rowWait is sqllock.RowWait in seconds.
var rowWait = strconv.FormatInt(int64(sqllock.RowWait/time.Second), 10)

// Bounded implements [sqllock.Dialect].
func (d *dialect) Bounded(text string, brief bool) string {
	limit := rowWait
	if brief {
		limit = "0"
	}
	if d.bounds.Load() && (strings.HasPrefix(text, "UPDATE") || strings.HasPrefix(text, "INSERT") ||
		strings.HasPrefix(text, "DELETE") ||
		strings.HasSuffix(text, "FOR UPDATE")) {
		return "SET STATEMENT innodb_lock_wait_timeout = " + limit + " FOR " + text
	}
	return text
}

// InsertNew implements [sqllock.Dialect].
func (d *dialect) InsertNew() (begin, end string) { return "INSERT IGNORE", "" }

// Fault implements [sqllock.Dialect].
func (d *dialect) Fault(err error) sqllock.Fault {
	var said *mysql.MySQLError
	if errors.As(err, &said) {
		switch said.Number {
		case 1205, 1213, 1614, 1020, 3572, 3101: // lock wait, deadlock, changed since read, NOWAIT, rolled back by the group
			return sqllock.Again
		case 1146, 1049, 1054: // no such table, database, column
			return sqllock.NoSchema
		case 1690, 1264: // a number is out of range
			return sqllock.OutOfRange
		case 1317, 1053, 1927, 3024, 1969, // interrupted, shutdown, connection killed, took too long
			1180: // an error at COMMIT: a Galera node may have lost the others during the commit
			return sqllock.Unknown
		case 1461, 1243, 1295, 1615: // too many; unknown here; cannot be prepared; prepared too long ago
			return sqllock.Unprepared
		case 1040, 1203, 1226, 1129, 1206, 1637, // too many of something
			1021, 1114, 1037, 1038, 1041, 1135, // no space, no memory, no thread
			1047, 3032, 4031: // not ready, offline, closed after idling
			return sqllock.NotDone
		case 1044, 1142, 1143, 1227, 1370: // the user lacks a right
			return sqllock.Denied
		}
		return sqllock.Refused
	}
	if ofPostgres(err) {
		return sqllock.Refused
	}
	if errors.Is(err, mysql.ErrPktTooLarge) { // longer than maxAllowedPacket of the pool's parameters: not sent
		return sqllock.Refused
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, sqldriver.ErrBadConn) ||
		errors.Is(err, mysql.ErrNoTLS) || errors.Is(err, mysql.ErrOldProtocol) { // the server's greeting did not suffice
		return sqllock.NotDone
	}
	return sqllock.Unknown
}

// ofPostgres reports whether err is an answer of PostgreSQL.
func ofPostgres(err error) bool {
	var said interface{ SQLState() string }
	return errors.As(err, &said)
}

// Advise implements [sqllock.Dialect].
func (d *dialect) Advise(err error, creates bool) string {
	if ofPostgres(err) {
		return "the pool leads to PostgreSQL, and the dialect is that of MySQL: use postgres.Dialect"
	}
	switch answer(err) {
	case 1290, 1792, 1836:
		return "the server is a replica, or read_only is on: connect to the primary"
	case 1044, 1142, 1143, 1370:
		if creates {
			return "the user needs the right to create tables (CREATE on the database), or an administrator creates them"
		}
		return "the user needs SELECT, INSERT, UPDATE and DELETE on hf_meta, hf_lock, hf_done, hf_bell and hf_history"
	case 1045, 1698:
		return "check the user and the password"
	case 1021, 1114:
		return "free some space on the server's disk"
	case 1040, 1203, 1226:
		return "no connection is left: raise the limit, or use fewer"
	}
	return ""
}

// lost reports whether err is a connection's error, not the server's answer.
func lost(err error) bool {
	var said *mysql.MySQLError
	return err != nil && !errors.As(err, &said) &&
		(errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
			errors.Is(err, io.EOF) || errors.As(err, new(net.Error)))
}
