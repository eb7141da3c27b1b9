// Package mysql makes package sqllock work on MySQL 8 and MariaDB.
//
//	db, err := sql.Open("mysql", "user:password@tcp(db:3306)/locks")
//	b := sqllock.New(db, mysql.Dialect(), nil)
//
// Taking a free name, joining its queue, renewing, releasing and handing over are one statement
// each. A releasing process wakes the next holder with KILL QUERY: each waiting process has one
// connection that sleeps in a statement. Where that does not work, waiters poll every 5 to 50 ms;
// [sqllock.Server.Polling] returns why.
package mysql
