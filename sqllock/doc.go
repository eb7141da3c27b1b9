// Package sqllock keeps a lock table in an SQL database.
//
// [OpenSQLite] is the embedded store: one SQLite file, shared by the processes of one
// machine, with no server. It uses database/sql and links no SQLite driver itself: the
// program imports one, such as
//
//	import _ "modernc.org/sqlite"
//
// [New] is the store of a database server, on the application's own pool, in tables that
// [Init] makes: MySQL and MariaDB with the dialect of package mysql, PostgreSQL with that of
// package postgres. Start with those packages' examples.
//
// The files of the one begin with sqlite_, those of the other with server. They have the way of
// waking waiters inside a process in common (bells.go), and what package rule says.
package sqllock
