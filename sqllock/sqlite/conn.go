package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// busyLimit bounds a call without a deadline while another process keeps the file locked, for
// instance one stopped during a transaction.
const busyLimit = 5 * time.Second

// conn is one connection with its prepared statements. Only the goroutine that has its gate may use
// it. Statements take no ctx: each takes microseconds and none waits (SQLite's busy handler is
// off), and a driver needs a goroutine to watch a ctx.
type conn struct {
	gate  chan struct{}
	queue *host.Gate // between processes; nil for the read connection
	c     *sql.Conn
	stmts [numQueries]*sql.Stmt
	used  func() // called after each use
	open  bool   // a transaction may be open
}

func (c *conn) stmt(q query) (*sql.Stmt, error) {
	if c.stmts[q] == nil {
		s, err := c.c.PrepareContext(context.Background(), queries[q])
		if err != nil {
			return nil, err
		}
		c.stmts[q] = s
	}
	return c.stmts[q], nil
}

func (c *conn) close() error {
	for i, s := range c.stmts {
		if s != nil {
			s.Close()
			c.stmts[i] = nil
		}
	}
	return c.c.Close()
}

// exec runs q and returns the number of changed rows.
func (c *conn) exec(q query, args ...any) (int64, error) {
	s, err := c.stmt(q)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// get scans the one row of q into dest and reports whether it exists.
func (c *conn) get(q query, args []any, dest ...any) (bool, error) {
	s, err := c.stmt(q)
	if err != nil {
		return false, err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	if !rows.Next() {
		return false, rows.Err()
	}
	if err := unreadable(rows.Scan(dest...)); err != nil {
		return false, err
	}
	return true, rows.Close()
}

// start begins a transaction. If that fails, it tries once more: nothing has been done.
func (c *conn) start(q query) error {
	c.open = true // also if it fails
	_, err := c.exec(q)
	if err == nil || isBusy(err) {
		return err
	}
	if end := c.end(); end != nil {
		return err
	}
	c.open = true
	_, err = c.exec(q)
	return err
}

// end rolls back the transaction that may be open. If it fails, the next use of c begins with it: an open transaction
// keeps the file locked, shows old data, and takes up what is meant to be on record at once.
func (c *conn) end() error {
	const tries = 2
	var err error
	for range tries {
		// SQLite rolls back by itself after some errors.
		if _, err = c.exec(qRollback); err == nil || strings.Contains(err.Error(), "no transaction is active") {
			c.open = false
			return nil
		}
	}
	return err
}

// each calls do for every row of q.
func (c *conn) each(q query, args []any, do func(scan func(...any) error) error) error {
	s, err := c.stmt(q)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		err := do(func(dest ...any) error { return unreadable(rows.Scan(dest...)) })
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

// with runs do while it has c to itself. It repeats do while another process has the file locked,
// as long as ctx and busyLimit allow. Its short pauses are fairer than SQLite's, which grow to 100
// ms: a process in such a pause loses to newcomers.
func (c *conn) with(ctx context.Context, do func() error) error {
	return c.alone(ctx, func() error {
		return retryBusy(ctx, func() error {
			if c.open {
				if err := c.end(); err != nil {
					return err
				}
			}
			return do()
		})
	})
}

// alone runs do while it has c to itself.
func (c *conn) alone(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	select {
	case c.gate <- struct{}{}:
	default:
		limit := time.NewTimer(busyLimit)
		defer limit.Stop()
		select {
		case c.gate <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		case <-limit.C:
			return fmt.Errorf("%w: the file stayed locked for %v", driver.ErrUnavailable, busyLimit)
		}
	}
	defer func() { <-c.gate }()
	if c.c == nil {
		return driver.ErrClosed
	}
	defer c.used()
	if c.queue != nil && c.queue.Lock(ctx, busyLimit/2) {
		defer c.queue.Unlock()
	}
	return do()
}

func retryBusy(ctx context.Context, do func() error) error {
	err := do()
	if !isBusy(err) {
		return fault(err)
	}
	var timer *time.Timer
	begun := time.Now()
	for pause := (backoff.Pause{First: 50 * time.Microsecond, Most: 2 * time.Millisecond}); ; {
		d := pause.Next()
		d = d/2 + rand.N(d)
		if timer == nil {
			timer = time.NewTimer(d)
			defer timer.Stop()
		} else {
			timer.Reset(d)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w (%w)", driver.ErrUnavailable, ctx.Err(), err)
		}
		if err = do(); !isBusy(err) {
			return fault(err)
		}
		if time.Since(begun) > busyLimit {
			return fmt.Errorf("%w: the file stayed locked for %v: %w", driver.ErrUnavailable, busyLimit, err)
		}
	}
}

// maxContended bounds how many contended names a process remembers.
const maxContended = 1024

// errCeiling: a token would reach meta.ceiling, which must be raised first.
var errCeiling = errors.New("token ceiling reached")

// tx is a write transaction. It keeps the lock rows that it read, and writes back those that
// changed.
type tx struct {
	st            *store
	c             *conn
	now           int64 // the store's clock, read after the file was locked
	us            int64 // the wall clock in microseconds, for tokens
	rows          map[string]*row
	order         []*row
	notifications []notification
}

// write runs do in a transaction and, after the commit, notifies new holders. It removes sessions
// that prove dead, which may hand their grants over. If do returns an answer such as ErrGone, its
// changes are committed: a late release still ends expired leases. Errors of the database roll
// back.
func (st *store) write(ctx context.Context, do func(*tx) error) error {
	return st.writeOr(ctx, "", func() (bool, error) { return false, nil }, do)
}

// writeOr is write, unless quick does everything in one statement. If name was contended the last
// time, quick would fail and is not tried.
func (st *store) writeOr(ctx context.Context, name string, quick func() (bool, error), do func(*tx) error) error {
	var dead []notification
	var verdict error
	try := func() error {
		t, err := st.begin()
		if err != nil {
			return err
		}
		if verdict = do(t); verdict == nil || isVerdict(verdict) {
			if err = t.commit(); err == nil {
				dead = st.notify(t.notifications) // first: a waiter needs it
				return nil
			}
		} else {
			err = verdict
		}
		t.c.end()
		return err
	}
	once := func() error {
		dead, verdict = nil, nil // with repeats this while the file is locked
		err := st.present()
		if err == nil && !st.contended[name] {
			var done bool
			if done, err = quick(); done {
				return err
			}
		}
		if err != nil {
			return err
		}
		err = try()
		for i := 0; errors.Is(err, errCeiling) && i < 3; i++ {
			if err = st.raise(); err == nil {
				err = try()
			}
		}
		return err
	}
	err := st.w.with(ctx, func() error {
		err := once()
		if noRoom(err) && st.rewindLog() {
			err = once()
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, g := range dead {
		st.removeWhenDead(g)
	}
	return verdict
}

// rewindLog moves the log into the file, so that the next transaction writes at the log's
// beginning. There is space even on a full disk. It reports success.
func (st *store) rewindLog() bool {
	var busy, pages, moved int
	err := st.w.c.QueryRowContext(context.Background(), `PRAGMA wal_checkpoint(RESTART)`).Scan(&busy, &pages, &moved)
	return err == nil && busy == 0 && pages > 0
}

func (st *store) begin() (*tx, error) {
	if err := st.w.start(qBegin); err != nil {
		return nil, err
	}
	return &tx{st: st, c: st.w, now: st.env.now(), us: st.env.wall(), rows: map[string]*row{}}, nil
}

func (t *tx) commit() error {
	for _, r := range t.order {
		if r.dirty {
			if err := t.putRow(r); err != nil {
				return err
			}
		}
	}
	for i := range t.notifications {
		if err := t.address(&t.notifications[i]); err != nil {
			return err
		}
	}
	if _, err := t.c.exec(qCommit); err != nil {
		return err
	}
	t.c.open = false
	for _, r := range t.order {
		t.st.noteContended(r.name, r.waiting > 0 || len(t.notifications) > 0)
	}
	return nil
}

// noteContended records for the next writeOr whether name is contended.
func (st *store) noteContended(name string, contended bool) {
	switch {
	case !contended:
		delete(st.contended, name)
	case len(st.contended) >= maxContended && !st.contended[name]:
		clear(st.contended) // it is only a hint
		fallthrough
	default:
		st.contended[name] = true
	}
}

// span is the step of the ceiling: an hour of the wall clock in microseconds.
const span = int64(time.Hour / time.Microsecond)

// raise moves meta.ceiling up and syncs that to the disk. All other commits only reach the system's
// cache, so a power loss can undo the latest of them, and their tokens. But all tokens are below
// the ceiling, and the first open after a reboot sets the floor to the ceiling. So no token is
// given out twice, whatever was lost and however the wall clock was set. This costs one fsync an
// hour.
func (st *store) raise() (err error) {
	bg := context.Background()
	if _, err := st.w.c.ExecContext(bg, `PRAGMA synchronous = FULL`); err != nil {
		return err
	}
	defer func() {
		_, back := st.w.c.ExecContext(bg, `PRAGMA synchronous = NORMAL`)
		err = errors.Join(err, back)
	}()
	_, err = st.w.exec(qCeiling, st.env.wall()+span, span)
	return err
}
