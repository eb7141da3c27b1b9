// Package sqllock keeps a lock table in an SQL database.
//
// [OpenSQLite] opens the embedded store: one SQLite file, shared by the processes of one machine,
// with no server. It uses database/sql and links no SQLite driver itself: the program imports one,
// such as
//
//	import _ "modernc.org/sqlite"
//
// [New] uses a database server, through the application's own pool, in tables that [Init] creates.
// The dialect of package mysql serves MySQL and MariaDB; that of package postgres serves
// PostgreSQL. Start with those packages' examples.
//
// Files of the embedded store begin with sqlite_, files of the server store with server. Both share
// waiters.go and the packages rule and waiters.
package sqllock
