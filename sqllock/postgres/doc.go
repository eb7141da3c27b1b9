// Package postgres makes package sqllock work on PostgreSQL.
//
//	db, err := sql.Open("pgx", "postgres://user@db/locks")
//	b := sqllock.New(db, postgres.Dialect(), nil)
//
// Taking a free name, joining its queue, renewing, releasing and handing over are one statement
// each; holdfast creates no functions in the database. The hand-over notifies the next holder with
// NOTIFY, in the same statement; each process listens on one connection of github.com/jackc/pgx/v5.
// Notifications do not arrive behind a pooler in transaction mode, or with another driver. Then
// waiters poll every 5 to 50 ms, unless [sqllock.Config] has a direct connection;
// [sqllock.Server.Polling] returns why. Behind a pooler no statement is prepared.
//
// Grants and renewals wait for the disk even where synchronous_commit is off; releases do not wait
// even where it is on.
package postgres
