// Package sqllock keeps a lock table in an SQL database.
//
// [OpenSQLite] is the embedded store: one SQLite file, shared by the processes of one
// machine, with no server. It uses database/sql and links no SQLite driver itself: the
// program imports one, such as
//
//	import _ "modernc.org/sqlite"
package sqllock
