// Package postgres makes package sqllock work on PostgreSQL.
//
//	db, err := sql.Open("pgx", "postgres://user@db/locks")
//	b := sqllock.New(db, postgres.Dialect(), nil)
//
// Taking a free name, joining its line, renewing, releasing and handing over are one statement each;
// no functions are made in the database. The hand-over tells the next with NOTIFY, in the same
// statement; each process listens on one connection of github.com/jackc/pgx/v5. Where
// notifications do not arrive, as behind a pooler in transaction mode or with another driver, waiters look
// every 5 to 50 ms, unless [sqllock.Config] has a direct way; [sqllock.Server.Polling] says why.
// Behind a pooler no statement is prepared.
//
// Grants and renewals wait for the disk even where synchronous_commit is off; releases do not
// even where it is on.
package postgres
