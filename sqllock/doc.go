// Package sqllock keeps a lock table in a database server, through the application's own pool.
//
// [New] uses tables that [Init] creates. The dialect of package mysql serves MySQL and MariaDB; that
// of package postgres serves PostgreSQL. Start with those packages' examples. Package sqlite is a
// store of its own, in a file.
package sqllock
