package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

// The errors of a server, each caused for real. mark checks that an error wraps the server's own
// with this number or state.

func testTimeout(t *testing.T, d *database, short *sql.DB, mark func(error) bool) {
	ctx := testContext(t)
	first, err := d.begin(ctx, d.db, "timeout", 1)
	must(t, err)
	impatient := &database{dialect: d.dialect, db: short}
	err = impatient.touch(ctx, "timeout", 2)
	wantErr(t, err, fence.ErrRetry)
	if !mark(err) {
		t.Errorf("%v does not wrap the server's error", err)
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	tx, err := short.BeginTx(ctx, nil)
	must(t, err)
	err = fence.Begin(dead, ignoresContext{tx}, d.dialect, "timeout", 2)
	wantErr(t, err, context.Canceled)
	if !mark(err) || errors.Is(err, fence.ErrRetry) {
		t.Errorf("%v: want the context's error and the server's, and not ErrRetry", err)
	}
	must(t, first.Commit())
	must(t, impatient.touch(ctx, "timeout", 2))
}

// ignoresContext is a transaction of a driver that ignores contexts.
type ignoresContext struct{ *sql.Tx }

func (d ignoresContext) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return d.Tx.ExecContext(context.WithoutCancel(ctx), query, args...)
}

func (d ignoresContext) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return d.Tx.QueryRowContext(context.WithoutCancel(ctx), query, args...)
}

func testDeadlock(t *testing.T, d *database, mark func(error) bool) {
	ctx := testContext(t)
	a, err := d.begin(ctx, d.db, "deadlock/a", 1)
	must(t, err)
	b, err := d.begin(ctx, d.db, "deadlock/b", 1)
	must(t, err)
	other := make(chan error, 1)
	go func() { other <- fence.Begin(ctx, a, d.dialect, "deadlock/b", 1) }()
	err = fence.Begin(ctx, b, d.dialect, "deadlock/a", 1)
	if err == nil { // the server chooses which one it ends
		must(t, b.Commit())
		err = <-other
	} else {
		must(t, <-other)
		must(t, a.Commit())
	}
	wantErr(t, err, fence.ErrRetry)
	if !mark(err) {
		t.Errorf("%v does not wrap the server's error", err)
	}
}

// testKilled ends the statement of a Begin that waits.
func testKilled(t *testing.T, d *database, session, kill, text string) {
	ctx := testContext(t)
	first, err := d.begin(ctx, d.db, "killed", 1)
	must(t, err)
	conn, err := d.db.Conn(ctx)
	must(t, err)
	var id int
	must(t, conn.QueryRowContext(ctx, session).Scan(&id))
	end := make(chan error, 1)
	go func() {
		_, err := d.begin(ctx, conn, "killed", 2)
		end <- err
	}()
	d.awaitWaiter(ctx, t, end)
	exec(t, d.db, q(kill, id))
	isPlainError(t, <-end, text)
	must(t, conn.Close())
	must(t, first.Commit())
}

// testIdle pauses a holder in its transaction, in a session that the server ends when it is idle.
// The next one may begin, whatever its token, and sees none of the first one's writes.
func testIdle(t *testing.T, d *database, setting string) {
	ctx := testContext(t)
	name := d.counter(t)
	first, err := d.begin(ctx, d.db, name, 9)
	must(t, err)
	must(t, write(ctx, first, name, 100))
	_, err = first.ExecContext(ctx, setting)
	must(t, err)
	must(t, d.add(ctx, name, 1)) // it waits until the first has ended
	if err := first.Commit(); err == nil {
		t.Error("the first could commit after the second had begun")
	}
	if n := d.value(t, name); n != 1 {
		t.Errorf("the counter is %d; want 1", n)
	}
}

func testReadOnly(t *testing.T, d *database, text string) {
	ctx := testContext(t)
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	must(t, err)
	isPlainError(t, fence.Begin(ctx, tx, d.dialect, "r", 1), text)
}

// testGrants makes a user with each of these rights on hf_fence and no others.
func testGrants(t *testing.T, d *database, user func(name, rights string) *sql.DB) {
	ctx := testContext(t)
	enough := &database{dialect: d.dialect, db: user("enough", "SELECT, INSERT, UPDATE")}
	must(t, enough.touch(ctx, "grants", 1))
	must(t, enough.touch(ctx, "grants", 2))
	wantErr(t, enough.touch(ctx, "grants", 1), fence.ErrStale)
	for name, rights := range map[string]string{
		"no_select": "INSERT, UPDATE", "no_insert": "SELECT, UPDATE", "no_update": "SELECT, INSERT",
	} {
		less := &database{dialect: d.dialect, db: user(name, rights)}
		isPlainError(t, less.touch(ctx, "grants", 2), "denied")
	}
}

// testGone kills the server under a transaction.
func testGone(t *testing.T, d *database, kill func()) {
	ctx := testContext(t)
	tx, err := d.db.BeginTx(ctx, nil)
	must(t, err)
	kill()
	err = fence.Begin(ctx, tx, d.dialect, "gone", 1)
	if err == nil || fence.Retryable(d.dialect, err) || errors.Is(err, fence.ErrStale) ||
		errors.Is(err, context.Canceled) {
		t.Errorf("without a server: %v", err)
	}
}
