// Package mysql makes package sqllock work on MySQL 8 and MariaDB.
//
//	db, err := sql.Open("mysql", "user:password@tcp(db:3306)/locks")
//	b := sqllock.New(db, mysql.Dialect(), nil)
//
// Taking a free name, joining its line, renewing, releasing and handing over are one statement each.
// Whoever hands over wakes the next with KILL QUERY: each process that waits has one connection that
// sleeps in a statement. Where that cannot be done, waiters look every 5 to 50 ms; [sqllock.Server.Polling] says why.
package mysql
