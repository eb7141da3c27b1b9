package postgres_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// The locks are in the application's own database, and use its own pool.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@localhost/app")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(20) // at least 3
	if err := sqllock.Init(ctx, db, postgres.Dialect()); err != nil {
		log.Fatal(err) // or "holdfast init", once, by a user who may create tables
	}
	client, err := holdfast.New(ctx, sqllock.New(db, postgres.Dialect(), nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close(ctx) }()
	err = client.Mutex("invoices/2026-11").Do(ctx, func(ctx context.Context) error {
		return send(ctx, holdfast.Token(ctx)) // ctx ends when the lock is lost
	})
	if err != nil {
		log.Print(err)
	}
}

// Through a pooler in transaction mode nobody can listen; a second, direct pool can.
func Example_pooler() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@pooler:6432/app?default_query_exec_mode=exec")
	if err != nil {
		log.Fatal(err)
	}
	direct, err := sql.Open("pgx", "postgres://app@db:5432/app")
	if err != nil {
		log.Fatal(err)
	}
	store := sqllock.New(db, postgres.Dialect(), &sqllock.Config{Listen: direct})
	client, err := holdfast.New(ctx, store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close(ctx) }()
	if why := store.Polling(); why != "" {
		log.Print("waiters poll: ", why)
	}
}

func send(context.Context, uint64) error { return nil }
