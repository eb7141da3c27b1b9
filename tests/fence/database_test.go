package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/fence"
	_ "modernc.org/sqlite"
)

// database is one way to run transactions: a server or file, and an isolation level.
type database struct {
	dialect fence.Dialect
	db      *sql.DB
	level   sql.IsolationLevel

	// waits counts the transactions that wait for another one. Empty: none wait in this database; a
	// Begin that would have to wait gets ErrRetry.
	waits string

	excludes bool // a transaction excludes the others from its start, before Begin

	lateBegin string // after a read, Begin: "fresh" data, "old" data, "retry"; "": excluded
}

// limit is long enough for any step of a test.
const limit = time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v; want %v", err, want)
	}
}

// exec runs statements outside of any transaction.
func exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// prepare creates the tables of the tests: counters that are read, increased and written, and a log
// of the writes.
func (d *database) prepare(t testing.TB) {
	t.Helper()
	exec(t, d.db, fence.Schema(d.dialect), fence.Schema(d.dialect),
		`CREATE TABLE counter (name VARCHAR(100) PRIMARY KEY, n BIGINT NOT NULL, token BIGINT NOT NULL)`,
		`CREATE TABLE log (name VARCHAR(100) NOT NULL, n BIGINT NOT NULL, token BIGINT NOT NULL)`)
}

var names atomic.Int64

// counter makes a counter that no other test uses, and returns its name.
func (d *database) counter(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("counter/", names.Add(1))
	exec(t, d.db, `INSERT INTO counter (name, n, token) VALUES ('`+name+`', 0, 0)`)
	return name
}

// q puts the values into the statement, in the same way for all drivers: they are numbers and the
// tests' own names.
func q(statement string, values ...any) string {
	for _, v := range values {
		if s, ok := v.(string); ok {
			v = "'" + s + "'"
		}
		statement = strings.Replace(statement, "?", fmt.Sprint(v), 1)
	}
	return statement
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func read(ctx context.Context, tx queryer, name string) (n int64, err error) {
	err = tx.QueryRowContext(ctx, q(`SELECT n FROM counter WHERE name = ?`, name)).Scan(&n)
	return n, err
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func write(ctx context.Context, tx execer, name string, n int64) error {
	_, err := tx.ExecContext(ctx, q(`UPDATE counter SET n = ? WHERE name = ?`, n, name))
	return err
}

// value returns the current counter.
func (d *database) value(t testing.TB, name string) int64 {
	t.Helper()
	n, err := read(context.Background(), d.db, name)
	must(t, err)
	return n
}

type beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// begin starts a transaction with the token. The start may already conflict with another one.
func (d *database) begin(ctx context.Context, on beginner, resource string, token uint64) (*sql.Tx, error) {
	tx, err := on.BeginTx(ctx, &sql.TxOptions{Isolation: d.level})
	if err != nil {
		return nil, err
	}
	return tx, fence.Begin(ctx, tx, d.dialect, resource, token)
}

// within runs f in a transaction with the token, once.
func (d *database) within(ctx context.Context, resource string, token uint64, f func(tx *sql.Tx) error) error {
	tx, err := d.begin(ctx, d.db, resource, token)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// touch is a transaction with only a Begin.
func (d *database) touch(ctx context.Context, resource string, token uint64) error {
	return d.within(ctx, resource, token, func(*sql.Tx) error { return nil })
}

// retry repeats f as long as it returns ErrRetry.
func (d *database) retry(ctx context.Context, f func() error) error {
	for {
		if err := f(); !fence.Retryable(d.dialect, err) || ctx.Err() != nil {
			return err
		}
	}
}

// awaitWaiter returns when a transaction waits for another one. It fails if the transaction ends
// before.
func (d *database) awaitWaiter(ctx context.Context, t *testing.T, end <-chan error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond) // no event reports that a session waits
	defer tick.Stop()
	for {
		var name string
		var n int
		must(t, d.db.QueryRowContext(ctx, d.waits).Scan(&name, &n))
		if n > 0 {
			return
		}
		select {
		case err := <-end:
			t.Fatalf("the transaction did not wait: %v", err)
		case <-tick.C:
		}
	}
}

func sqliteDSN(path, more string) string {
	return "file:" + path + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)" + more
}

func sqliteFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "app.db")
}
