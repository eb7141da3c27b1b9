package lab

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/open"
)

// sqlHost is a MariaDB or PostgreSQL server of the lab, or a folder for files of SQLite.
type sqlHost struct {
	kind    *sqlKind
	account servers.Account
	run     servers.Server
	socket  string  // of the server; empty: there is none
	admin   *sql.DB // creates databases
	cleanup func()

	mu sync.Mutex // one database at a time: they are copies of one template
	n  int

	polls sync.Mutex
}

// sqlEngine is a database of its own. Commands are SQL. The word 'R' is the name of the lock; that
// of a lock of the whole server gets the prefix of the run.
type sqlEngine struct {
	*sqlKind
	host     *sqlHost
	database string
	admin    *sql.DB // the lab's own connections to the database

	tables []string // that Setup has created
	timed  []string // those with a column expires_at
	ready  bool     // the tables of holdfast exist
}

var tableForm = form(`^CREATE TABLE (\w+) (.*)`)

func (h *sqlHost) engine(p *scenario, setup []string) (engine, error) {
	h.mu.Lock()
	h.n++
	e := &sqlEngine{sqlKind: h.kind, host: h, database: fmt.Sprint("row", h.n)}
	var err error
	if h.admin != nil {
		_, err = h.admin.ExecContext(p.ctx, e.create+" "+e.database)
	}
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if e.admin, err = e.open(h, e.database); err != nil {
		return nil, err
	}
	p.cleanup = append(p.cleanup, func() { _ = e.admin.Close() })
	for _, s := range append(e.before, setup...) {
		if _, err := e.admin.ExecContext(p.ctx, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		if m := tableForm().FindStringSubmatch(s); m != nil {
			e.tables = append(e.tables, m[1])
			if strings.Contains(m[2], "expires_at") {
				e.timed = append(e.timed, m[1])
			}
		}
	}
	return e, nil
}

// backend implements engine. A file has no network.
func (e *sqlEngine) backend(p *scenario, _ time.Duration) (driver.Backend, network) {
	url := e.url(e.host, e.database)
	if !e.ready {
		_, err := open.Init(p.ctx, url)
		p.must(err)
		e.ready = true
	}
	if e.host.socket == "" {
		s, err := open.Open(p.ctx, url)
		p.must(err)
		p.cleanup = append(p.cleanup, func() { _ = s.Close() })
		return s, nil
	}
	n, err := newRelayed("unix", e.host.socket)
	p.must(err)
	p.cleanup = append(p.cleanup, func() { _ = n.Close() })
	s, err := open.Via(p.ctx, url, n.dial)
	p.must(err)
	p.cleanup = append(p.cleanup, func() { _ = s.Close() })
	return s, n
}

// pass implements engine: it moves every expires_at back.
func (e *sqlEngine) pass(p *scenario, d time.Duration) (ended int) {
	for _, t := range e.timed {
		var n int
		p.must(e.admin.QueryRowContext(p.ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE %s > 0 AND %s <= %d", t, e.left,
			e.left, d.Microseconds())).Scan(&n))
		ended += n
		_, err := e.admin.ExecContext(p.ctx, fmt.Sprintf("UPDATE %s SET expires_at = %s", t,
			fmt.Sprintf(e.earlier, d.Microseconds())))
		p.must(err)
	}
	return ended
}

// look implements engine: the tables, or else the locks that the server keeps for its connections.
func (e *sqlEngine) look(p *scenario) string {
	if len(e.tables) == 0 {
		text, err := ask(p.ctx, e.admin, serverWide(e.held, p.prefix))
		p.must(err)
		return "at the server: " + text
	}
	var all []string
	for _, t := range e.tables {
		query := "SELECT * FROM " + t
		if slices.Contains(e.timed, t) {
			query = fmt.Sprintf("SELECT %s AS time_left, %s.* FROM %s", e.left, t, t)
		}
		text, err := ask(p.ctx, e.admin, query)
		p.must(err)
		all = append(all, t+" "+text)
	}
	return "at the server: " + strings.Join(all, "; ")
}

// serverWide gives the locks of the whole server, as GET_LOCK has, names of this run alone.
func serverWide(command, prefix string) string {
	return strings.ReplaceAll(command, "_LOCK('", "_LOCK('"+prefix)
}

// sqlSession is a connection.
type sqlSession struct {
	e      *sqlEngine
	prefix string
	db     *sql.DB
	conn   *sql.Conn
	id     string // at the server
	fault  error
}

func (e *sqlEngine) session(c *client) (session, error) {
	s := &sqlSession{e: e, prefix: c.prefix}
	var err error
	if s.db, err = e.open(e.host, e.database); err != nil {
		return nil, err
	}
	c.cleanup = append(c.cleanup, s.close)
	if s.conn, err = s.db.Conn(c.ctx); err == nil && e.id != "" {
		s.id, err = ask(c.ctx, s.conn, e.id)
	}
	return s, err
}

// close ends the connection, as the kernel does for a process that has crashed.
func (s *sqlSession) close() {
	if s.conn != nil {
		_ = s.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
	_ = s.db.Close()
}

func (s *sqlSession) set(m linkMode) {
	switch m {
	case passing:
	case dead:
		s.close()
	default:
		s.fault = fmt.Errorf("%w: a connection of SQL can only crash", driver.ErrInvalid)
	}
}

func (s *sqlSession) send(ctx context.Context, command string) (string, error) {
	if s.fault != nil {
		return "", s.fault
	}
	text, err := ask(ctx, s.conn, serverWide(command, s.prefix))
	switch {
	case err == nil:
		return text, nil
	case ctx.Err() != nil:
		return "", err
	}
	if text = s.e.refusal(err); text == "" {
		text = "the connection is lost"
	}
	return "error: " + text, nil
}

// blocked implements session: it asks the server.
func (s *sqlSession) blocked(ctx context.Context) error {
	if s.e.waits == "" {
		return fmt.Errorf("%w: no command of %s keeps a client waiting", driver.ErrInvalid, s.e.name)
	}
	for {
		n, err := s.e.host.poll(ctx, s.e.admin, strings.ReplaceAll(s.e.waits, "ID", s.id))
		switch {
		case err == nil && n != "0":
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
}

// poll asks a question that is asked again until the answer is not 0, and pauses after that. The
// server may keep an answer as long as anybody asks, so only one row asks at a time.
func (h *sqlHost) poll(ctx context.Context, c asker, question string) (string, error) {
	h.polls.Lock()
	defer h.polls.Unlock()
	n, err := ask(ctx, c, question)
	if err != nil || n != "0" {
		return n, err
	}
	t := time.NewTimer(h.kind.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return n, nil
	case <-ctx.Done():
		return n, ctx.Err()
	}
}

// asker is a *sql.DB or a *sql.Conn.
type asker interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

var (
	queryForm  = form(`^(SELECT|SHOW|PRAGMA)\b|\bRETURNING\b`)
	changeForm = form(`^(INSERT|UPDATE|DELETE|REPLACE)\b`)
)

// ask sends a statement and returns the answer, as the timeline shows it: a value, rows, or how many
// rows have changed.
func ask(ctx context.Context, c asker, command string) (string, error) {
	if !queryForm().MatchString(command) {
		r, err := c.ExecContext(ctx, command)
		if err != nil || !changeForm().MatchString(command) {
			return "OK", err
		}
		n, err := r.RowsAffected()
		if n == 1 {
			return "1 row", err
		}
		return fmt.Sprintf("%d rows", n), err
	}
	rows, err := c.QueryContext(ctx, command)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var all []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return "", err
		}
		all = append(all, showRow(columns, values))
	}
	if len(all) == 0 {
		all = []string{"no row"}
	}
	return strings.Join(all, " "), rows.Err()
}

// showRow shows one value as it is, and several in brackets. In place of a time of expiry it shows
// how much time is left.
func showRow(columns []string, values []any) string {
	var all []string
	var left string
	for i, c := range columns {
		switch v := (*values[i].(*any)).(type) {
		case []byte:
			all = append(all, string(v))
		case nil:
			all = append(all, "NULL")
		default:
			all = append(all, fmt.Sprint(v))
		}
		switch c {
		case "time_left":
			left, all = showLeft(all[0]), nil
		case "expires_at":
			if left != "" {
				all[len(all)-1] = left
			}
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func showLeft(micros string) string {
	var n float64
	if _, err := fmt.Sscan(micros, &n); err != nil {
		return ""
	}
	if n <= 0 {
		return fmt.Sprintf("expired %.1f s ago", -n/1e6)
	}
	return fmt.Sprintf("expires in %.1f s", n/1e6)
}
