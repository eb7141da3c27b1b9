package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
)

func TestInTx(t *testing.T) {
	server := database(t)
	rows, admin := lockable(t, server)
	if _, err := admin.Exec("CREATE TABLE orders (name text NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	x := &sqltest.InTx{Locked: *rows, Snapshots: map[sql.IsolationLevel]bool{
		sql.LevelRepeatableRead: true, sql.LevelSerializable: true,
	}, Session: "SELECT pg_backend_pid()", Kill: func(id int64) {
		if _, err := admin.Exec("SELECT pg_terminate_backend($1)", id); err != nil {
			t.Error(err)
		}
	}}
	x.All(t)
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run("pgx/"+mode, func(t *testing.T) { testPgxInTx(t, server.DSN("postgres"), mode) })
	}
}

// testPgxInTx takes locks in transactions of pgx itself. Of their settings only the durability may
// change.
func testPgxInTx(t *testing.T, dsn, mode string) {
	ctx := t.Context()
	b, _ := backend(t, dsn, nil)
	c, err := holdfast.New(ctx, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	conn, err := pgx.Connect(ctx, dsn+"&default_query_exec_mode="+mode+"&synchronous_commit=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	name := "pgx/" + mode
	for _, none := range []any{pgx.Tx(nil), (*pgxpool.Tx)(nil)} {
		if _, err := c.InTx(ctx, none, name); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("InTx of %T that is nil: %v; want ErrInvalid", none, err)
		}
	}
	for _, commits := range []bool{false, true} {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := c.InTx(ctx, tx, name)
		if err != nil {
			t.Fatal(err)
		}
		var wait, durable string
		if err := tx.QueryRow(ctx, "SELECT current_setting('lock_timeout'), current_setting('synchronous_commit')").Scan(
			&wait, &durable); err != nil || wait != "0" || durable != "on" {
			t.Errorf("in the transaction lock_timeout is %s, and synchronous_commit is %s, %v", wait, durable, err)
		}
		if !commits {
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Resume(ctx, ticket); !errors.Is(err, holdfast.ErrGone) {
				t.Errorf("after a rollback: %v", err)
			}
			continue
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.InTx(ctx, tx, name); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("of a name that is held: %v; want ErrHeld", err)
		}
		if _, err := c.InTx(ctx, tx, name+"/other"); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("in a transaction that has ended: %v; want ErrInvalid", err)
		}
		l, err := c.Resume(ctx, ticket)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
}
