package mysql_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// The locks are in the application's own database, and use its own pool.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:password@tcp(localhost:3306)/app")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(20) // at least 3
	if err := sqllock.Init(ctx, db, mysql.Dialect()); err != nil {
		log.Fatal(err) // or "holdfast init", once, by a user who may create tables
	}
	client, err := holdfast.New(ctx, sqllock.New(db, mysql.Dialect(), nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close(ctx) }()
	err = client.Mutex("stock/42").Do(ctx, func(ctx context.Context) error {
		return book(ctx, holdfast.Token(ctx)) // ctx ends when the lock is lost
	})
	if err != nil {
		log.Print(err)
	}
}

func book(context.Context, uint64) error { return nil }
