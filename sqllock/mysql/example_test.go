package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// The locks are in the application's own database, and use its pool. The data are there, too: each
// transaction on them begins with the token, so the database refuses a holder whose lease is over.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("mysql", dsn()) // "app:password@tcp(localhost:3306)/app"
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(20) // at least 3
	// Once, by a user who may create tables; or "holdfast init".
	if err := sqllock.Init(ctx, db, mysql.Dialect()); err != nil {
		fmt.Println(err)
		return
	}
	for _, statement := range []string{
		fence.Schema(fence.MySQL), // once, too
		`CREATE TABLE stock (item INTEGER PRIMARY KEY, n INTEGER NOT NULL)`,
		`INSERT INTO stock VALUES (42, 10)`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			fmt.Println(err)
			return
		}
	}
	store := sqllock.New(db, mysql.Dialect(), nil)
	defer store.Close() // not db
	client, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

	sell := func(ctx context.Context, token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after Commit
		if err := fence.Begin(ctx, tx, fence.MySQL, "stock/42", token); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET n = n - 1 WHERE item = 42`); err != nil {
			return err
		}
		return tx.Commit()
	}
	var late uint64 // the token of a holder that is paused before it sells
	_ = client.Mutex("stock/42").Do(ctx, func(ctx context.Context) error {
		late = holdfast.Token(ctx)
		return nil
	})
	err = client.Mutex("stock/42").Do(ctx, func(ctx context.Context) error { // ctx ends when the lock is lost
		return sell(ctx, holdfast.Token(ctx))
	})
	fmt.Println("the second holder sells:", err)
	fmt.Println("the first one is too late:", errors.Is(sell(ctx, late), fence.ErrStale))
	// Output:
	// the second holder sells: <nil>
	// the first one is too late: true
}
