package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// The locks are in the application's own database, and use its pool. PostgreSQL wakes waiters by NOTIFY: no
// client polls.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", postgresURL()) // "postgres://app:password@localhost/app"
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(20) // at least 3
	// Once, by a user who may create tables; or "holdfast init".
	if err := sqllock.Init(ctx, db, postgres.Dialect()); err != nil {
		fmt.Println(err)
		return
	}
	store := sqllock.New(db, postgres.Dialect(), nil)
	defer store.Close() // not db
	client, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

	lease, err := client.Mutex("invoices/2026-11").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	next := make(chan *holdfast.Lease)
	go func() {
		l, err := client.Mutex("invoices/2026-11").Lock(ctx) // waits for the release
		if err != nil {
			fmt.Println(err)
		}
		next <- l
	}()
	fmt.Printf("polling: %q, released: %v\n", store.Polling(), lease.Release())
	second := <-next
	fmt.Println("the next holder has a larger token:", second.Token() > lease.Token())
	fmt.Println("released:", second.Release())
	// Output:
	// polling: "", released: <nil>
	// the next holder has a larger token: true
	// released: <nil>
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
