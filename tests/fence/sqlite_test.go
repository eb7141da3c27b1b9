package fence_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

func TestSQLite(t *testing.T) {
	for _, mode := range []string{"deferred", "immediate"} {
		t.Run(mode, func(t *testing.T) {
			d := &database{dialect: fence.SQLite, excludes: mode == "immediate"}
			if mode == "deferred" {
				d.lateBegin = "retry"
			}
			d.db = open(t, "sqlite", sqliteDSN(sqliteFile(t), "&_txlock="+mode))
			d.prepare(t)
			suite(t, d)
		})
	}
}

// With a busy_timeout SQLite waits for the other transaction instead of returning BUSY, and stops
// waiting when the context ends.
func TestSQLiteWaits(t *testing.T) {
	ctx := testContext(t)
	d := &database{dialect: fence.SQLite}
	d.db = open(t, "sqlite", sqliteDSN(sqliteFile(t), "&_pragma=busy_timeout(60000)"))
	d.prepare(t)
	name := d.counter(t)
	first, err := d.begin(ctx, d.db, name, 1)
	must(t, err)
	// SQLite does not show whether a transaction waits: these may be about to.
	start := func(ctx context.Context) <-chan error {
		end, begun := make(chan error, 1), make(chan struct{})
		go func() {
			tx, err := d.db.BeginTx(ctx, nil)
			close(begun)
			if err == nil {
				err = fence.Begin(ctx, tx, fence.SQLite, name, 2)
			}
			if err == nil {
				err = tx.Commit()
			}
			end <- err
		}()
		<-begun
		return end
	}
	short, cancel := context.WithCancel(ctx)
	cancelled := start(short)
	cancel()
	wantErr(t, <-cancelled, context.Canceled)
	second := start(ctx)
	must(t, first.Commit())
	must(t, <-second)
}

// An error that no retry can fix is not retryable.
func TestSQLiteErrors(t *testing.T) {
	ctx := testContext(t)
	path := sqliteFile(t)
	d := &database{dialect: fence.SQLite, db: open(t, "sqlite", sqliteDSN(path, ""))}
	isPlainError(t, d.touch(ctx, "r", 1), "no such table: hf_fence")
	d.prepare(t)
	reader := &database{dialect: fence.SQLite, db: open(t, "sqlite", "file:"+path+"?mode=ro")}
	isPlainError(t, reader.touch(ctx, "r", 1), "readonly")
	tx, err := d.db.BeginTx(ctx, nil)
	must(t, err)
	must(t, tx.Rollback())
	wantErr(t, fence.Begin(ctx, tx, fence.SQLite, "r", 1), sql.ErrTxDone)
}
