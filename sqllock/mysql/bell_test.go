package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// querier runs statements on a connection.
type querier struct {
	c *sql.Conn
	d sqllock.Dialect
}

func (q querier) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	text, args = q.d.Inline(q.d.Text(text), args)
	return q.c.ExecContext(ctx, text, args...)
}

func (q querier) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.d.Inline(q.d.Text(text), args)
	return q.c.QueryContext(ctx, text, args...)
}

func (q querier) Prepared() sqllock.Querier { return q }

// A bell that is about to sleep does not sleep if a waiter was granted something just before. So a
// wake-up just before the sleep is not lost.
func TestBellLooksBeforeItSleeps(t *testing.T) {
	t.Parallel()
	server := maria(t)
	a := join(t, server.DSN("root", ""), time.Minute)
	alone, share, permit := a.req("x"), a.shared("rw"), a.permits("sem", 1, 2)
	a.get(alone)
	a.get(share)
	a.get(permit)
	if err := testenv.Repeated(func() error { _, err := a.SetCount(a.ctx, "latch", 0); return err }); err != nil {
		t.Fatal(err)
	}
	const never = patient / 2
	for what, waiting := range map[string]map[string]sqllock.Waiters{
		"a grant":  {"x": {Alone: []string{alone.ID}}},
		"a share":  {"rw": {Group: []string{share.ID}}},
		"a permit": {"sem": {Group: []string{"nobody", permit.ID}}},
		"a latch":  {"latch": {Latch: []string{"nobody"}}},
		"one of many": {"y": {Alone: []string{"nobody"}}, "x": {Alone: []string{"nobody", alone.ID}},
			"z": {Group: []string{"nobody"}}},
		"no grant": {"x": {Alone: []string{"nobody"}}},
	} {
		t.Run(what, func(t *testing.T) {
			d := mysql.Dialect()
			db, err := pool(t, server.DSN("root", "")).Conn(t.Context()) // the reserved connection
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			looked := make(chan struct{}, 1)
			b, reason, err := d.OpenBell(t.Context(), sqllock.BellConfig{
				DB: a.db, Server: "test", Sleep: never,
				Keep: func(ctx context.Context, f func(q sqllock.Querier, opened time.Time) error) error {
					return f(querier{db, d}, time.Unix(1, 0))
				},
				Heard: func(sqllock.Ring) {},
				Look: func(context.Context) error {
					select {
					case looked <- struct{}{}:
					default:
					}
					return nil
				},
				Waiting: func() map[string]sqllock.Waiters { return waiting },
			})
			if err != nil || b == nil {
				t.Fatalf("OpenBell: %q, %v", reason, err)
			}
			defer func() { _ = b.Close() }()
			if what == "no grant" { // it sleeps, and is woken
				eventually(t, "it sleeps", func() bool {
					return value[int](t, a.db, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'") == 1
				})
				select {
				case <-looked:
					t.Error("it did not sleep")
				default:
				}
				if err := d.Wake(t.Context(), querier{db, d}, time.Unix(1, 0), []sqllock.Ring{{Server: "test"}}); err != nil {
					t.Errorf("Wake: %v", err)
				}
			}
			select {
			case <-looked:
			case <-time.After(never * 2 / 3):
				t.Error("it sleeps, though a waiter has a grant")
			}
		})
	}
}

// late is a querier that waits before it kills.
type late struct {
	querier
	wait func()
}

func (q late) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if strings.HasPrefix(text, "KILL") {
		q.wait()
	}
	return q.querier.Exec(ctx, text, args...)
}

func (q late) Prepared() sqllock.Querier { return q }

// unanswered is a querier whose KILL gets no answer.
type unanswered struct{ querier }

func (q unanswered) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	_, err := q.querier.Exec(ctx, text, args...)
	if strings.HasPrefix(text, "KILL") {
		err = errors.Join(err, errors.New("no answer"))
	}
	return nil, err
}

func (q unanswered) Prepared() sqllock.Querier { return q }

// blind is a querier of a proxy that hides the process list. Somebody else interrupts the statement.
type blind struct {
	querier
	interrupt func()
}

func (q blind) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if strings.Contains(text, "processlist") {
		q.interrupt()
		text += " AND FALSE"
	}
	return q.querier.Query(ctx, text, args...)
}

func (q blind) Prepared() sqllock.Querier { return q }

// TestBellProvesItself: a bell works if its KILL has interrupted the sleeper, with or without an answer. An
// interruption by somebody else proves nothing.
func TestBellProvesItself(t *testing.T) {
	t.Parallel()
	server := maria(t)
	d, db := mysql.Dialect(), pool(t, server.DSN("root", ""))
	reserved, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reserved.Close() }()
	var once sync.Once
	interrupt := func() {
		once.Do(func() {
			eventually(t, "somebody interrupts the sleeper", func() bool {
				conn := value[int64](t, db, "SELECT COALESCE(MAX(id), 0) FROM information_schema.processlist WHERE state = 'User lock'")
				if conn == 0 {
					return false
				}
				_, err := db.ExecContext(t.Context(), "KILL QUERY ?", conn)
				return err == nil
			})
		})
	}
	open := func(q sqllock.Querier) (sqllock.Bell, string, error) {
		return d.OpenBell(t.Context(), sqllock.BellConfig{
			DB: db, Server: "test", Sleep: time.Second,
			Keep: func(ctx context.Context, f func(q sqllock.Querier, opened time.Time) error) error {
				return f(q, time.Unix(1, 0))
			},
			Heard: func(sqllock.Ring) {}, Look: func(context.Context) error { return nil },
			Waiting: func() map[string]sqllock.Waiters { return nil },
		})
	}
	b, reason, err := open(unanswered{querier{reserved, d}})
	if err != nil || b == nil {
		t.Fatalf("a KILL without an answer: %q, %v", reason, err)
	}
	_ = b.Close()
	b, reason, err = open(blind{querier{reserved, d}, interrupt})
	if b != nil || !strings.Contains(reason, "process list") {
		t.Errorf("interrupted by somebody else: %v, %q, %v; want a reason", b, reason, err)
	}
}

// A process that stands still while it opens its bell has a bell all the same.
func TestBellOfALateProcess(t *testing.T) {
	t.Parallel()
	server := maria(t)
	for name, kills := range map[string]bool{"looks": false, "kills": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, db := mysql.Dialect(), pool(t, server.DSN("root", ""))
			reserved, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reserved.Close() }()
			sleeps := func() bool {
				return value[int](t, db, "SELECT COUNT(*) FROM information_schema.processlist"+
					" WHERE state = 'User lock' AND LOCATE(?, info) > 0", "hf_"+name) > 0
			}
			var once sync.Once
			standStill := func() { // until the statement has ended by itself
				once.Do(func() {
					eventually(t, "it sleeps", sleeps)
					eventually(t, "it sleeps no more", func() bool { return !sleeps() })
				})
			}
			calls := 0
			b, reason, err := d.OpenBell(t.Context(), sqllock.BellConfig{
				DB: db, Server: name, Sleep: time.Second,
				Keep: func(ctx context.Context, f func(q sqllock.Querier, opened time.Time) error) error {
					calls++ // the first takes the lock
					if calls == 2 && !kills {
						standStill()
					}
					q := late{querier{reserved, d}, func() {}}
					if kills {
						q.wait = standStill
					}
					return f(q, time.Unix(1, 0))
				},
				Heard: func(sqllock.Ring) {}, Look: func(context.Context) error { return nil },
				Waiting: func() map[string]sqllock.Waiters { return nil },
			})
			if err != nil || b == nil {
				t.Fatalf("OpenBell: %q, %v", reason, err)
			}
			_ = b.Close()
		})
	}
}
