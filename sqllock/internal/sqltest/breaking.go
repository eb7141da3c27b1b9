package sqltest

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
)

// Break is a fault of a connection at a statement.
type Break int

// The breaks. A statement that was sent has been executed; its answer is lost.
const (
	NotSent Break = iota // the caller does not know whether it was
	Stale                // the caller knows that it was not
	Sent
	Unanswered // it was sent, and the connection stays silent until the caller gives up
)

// String names the break for the messages of tests.
func (b Break) String() string { return [...]string{"not sent", "stale", "sent", "unanswered"}[b] }

// Breaking is a pool whose connections break at a chosen statement.
type Breaking struct {
	*sql.DB

	under sqldriver.Connector
	mu    sync.Mutex
	left  int    // statements until the break, including that one; 0: none breaks
	text  string // contained in that statement, with a line break at its end
	how   Break
	broke string // the statement at which a connection broke
	sent  []string
}

// OpenBreaking opens a pool with the driver of db.
func OpenBreaking(t testing.TB, db *sql.DB, dsn string) *Breaking {
	t.Helper()
	under, err := db.Driver().(sqldriver.DriverContext).OpenConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	b := &Breaking{under: under}
	b.DB = sql.OpenDB(b)
	t.Cleanup(func() { _ = b.DB.Close() })
	return b
}

// Arm breaks the connection at the n-th statement from now.
func (b *Breaking) Arm(n int, how Break) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.how, b.text, b.broke = n, how, "", ""
}

// ArmAt breaks the connection at the next statement that contains text; a line break is the
// statement's end.
func (b *Breaking) ArmAt(text string, how Break) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.how, b.text, b.broke = 1, how, text, ""
}

// Disarm returns the statement at which a connection broke; "": none.
func (b *Breaking) Disarm() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = 0
	return b.broke
}

// Sent returns the statements since the last call, without those that due does not count.
func (b *Breaking) Sent() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := b.sent
	b.sent = nil
	return sent
}

// due reports whether a connection must break at this statement, and how. Statements that wake processes
// do not count, since they come at any time.
func (b *Breaking) due(text string) (how Break, due bool) {
	for _, other := range []string{"hf_bell", "GET_LOCK", "RELEASE_LOCK", "KILL", "SHOW", "hf_meta"} {
		if strings.Contains(text, other) {
			return 0, false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, text)
	if b.left == 0 || !strings.Contains(text+"\n", b.text) {
		return 0, false
	}
	b.left--
	if b.left == 0 {
		b.broke = text
	}
	return b.how, b.left == 0
}

// Connect implements [sqldriver.Connector].
func (b *Breaking) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := b.under.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &breakingConn{Conn: c, pool: b}, nil
}

// Driver implements [sqldriver.Connector].
func (b *Breaking) Driver() sqldriver.Driver { return b.under.Driver() }

type breakingConn struct {
	sqldriver.Conn
	pool   *Breaking
	broken bool
}

// through runs a statement, or breaks the connection at it.
func through[T any](ctx context.Context, c *breakingConn, text string, run func() (T, error)) (none T, err error) {
	if c.broken {
		return none, sqldriver.ErrBadConn
	}
	how, due := c.pool.due(text)
	if !due {
		return run()
	}
	c.broken = true
	defer func() { _ = c.Conn.Close() }()
	switch how {
	case Stale:
		return none, sqldriver.ErrBadConn
	case Sent, Unanswered:
		got, err := run()
		if rows, ok := any(got).(sqldriver.Rows); ok && err == nil {
			values := make([]sqldriver.Value, len(rows.Columns()))
			for rows.Next(values) == nil {
			}
			err = rows.Close()
		}
		if err != nil && !errors.Is(err, sqldriver.ErrSkip) {
			return none, err
		}
		if how == Unanswered {
			<-ctx.Done()
			return none, ctx.Err()
		}
	}
	return none, io.ErrUnexpectedEOF
}

func (c *breakingConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (
	sqldriver.Result, error) {
	return through(ctx, c, text, func() (sqldriver.Result, error) {
		return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, args)
	})
}

func (c *breakingConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (
	sqldriver.Rows, error) {
	return through(ctx, c, text, func() (sqldriver.Rows, error) {
		return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, text, args)
	})
}

func (c *breakingConn) PrepareContext(ctx context.Context, text string) (sqldriver.Stmt, error) {
	if c.broken {
		return nil, sqldriver.ErrBadConn
	}
	s, err := c.Conn.(sqldriver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &breakingStmt{s, c, text}, nil
}

func (c *breakingConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	return c.Conn.(sqldriver.NamedValueChecker).CheckNamedValue(v)
}

func (c *breakingConn) ResetSession(ctx context.Context) error {
	if c.broken {
		return sqldriver.ErrBadConn
	}
	return c.Conn.(sqldriver.SessionResetter).ResetSession(ctx)
}

func (c *breakingConn) IsValid() bool { return !c.broken }

func (c *breakingConn) Close() error {
	if c.broken {
		return nil
	}
	return c.Conn.Close()
}

type breakingStmt struct {
	sqldriver.Stmt
	c    *breakingConn
	text string
}

func (s *breakingStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return through(ctx, s.c, s.text, func() (sqldriver.Result, error) {
		return s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args)
	})
}

func (s *breakingStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return through(ctx, s.c, s.text, func() (sqldriver.Rows, error) {
		return s.Stmt.(sqldriver.StmtQueryContext).QueryContext(ctx, args)
	})
}
