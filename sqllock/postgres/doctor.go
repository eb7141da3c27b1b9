package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
	"github.com/holdfast-lock/holdfast/sqllock"
)

var _ sqllock.Examiner = (*dialect)(nil)

// Whoami implements [sqllock.Examiner].
func (d *dialect) Whoami() string { return "SELECT 'started at ' || pg_postmaster_start_time()" }

// exam is one examination.
type exam struct {
	doctor.Findings
	is    map[string]string // settings of a connection of the pool
	count map[string]int64
	old   []transaction // oldest first
}

// examined are the settings that matter; pg_settings has times in milliseconds.
const examined = `SELECT name, coalesce(setting, '') FROM pg_settings WHERE name IN ('server_version', 'server_version_num', 'fsync', 'synchronous_commit',
	'full_page_writes', 'synchronous_standby_names', 'max_connections', 'superuser_reserved_connections', 'statement_timeout', 'idle_session_timeout',
	'default_transaction_read_only', 'autovacuum')
	UNION ALL SELECT 'readers of the secret', coalesce(string_agg(rolname, ', ' ORDER BY rolname), '') FROM pg_roles WHERE rolcanlogin AND NOT rolsuper
	AND has_table_privilege(oid, to_regclass('hf_secret'), 'SELECT') AND NOT has_table_privilege(oid, to_regclass('hf_lock'), 'UPDATE')`

// counted are numbers that every role may read: of rows whose content may be hidden.
const counted = `SELECT 'recovery', pg_is_in_recovery()::int UNION ALL SELECT 'standbys', count(*) FROM pg_stat_replication
	UNION ALL SELECT 'clients', count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL
	UNION ALL SELECT 'unlogged', count(*) FROM pg_class WHERE oid IN (to_regclass('hf_meta'), to_regclass('hf_lock'), to_regclass('hf_done'), to_regclass('hf_secret')) AND relpersistence <> 'p'
	UNION ALL SELECT 'tables', count(*) FROM pg_class WHERE oid IN (to_regclass('hf_meta'), to_regclass('hf_lock'), to_regclass('hf_done'), to_regclass('hf_secret'))`

// Examine implements [sqllock.Examiner].
func (d *dialect) Examine(ctx context.Context, db *sql.DB, ttl time.Duration, add func(driver.Finding)) error {
	x := &exam{is: map[string]string{}, count: map[string]int64{}}
	err := errors.Join(
		d.rows(ctx, db, examined, func(r *sql.Rows) error {
			var k, v string
			err := r.Scan(&k, &v)
			x.is[k] = v
			return err
		}),
		d.rows(ctx, db, counted, func(r *sql.Rows) error {
			var k string
			var n int64
			err := r.Scan(&k, &n)
			x.count[k] = n
			return err
		}),
		d.rows(ctx, db, creating, func(r *sql.Rows) error {
			var k, v string
			err := r.Scan(&k, &v)
			x.is[k] = v
			return err
		}),
		d.rows(ctx, db, keeping, func(r *sql.Rows) error {
			var o transaction
			err := r.Scan(&o.what, &o.ms)
			x.old = append(x.old, o)
			return err
		}))
	if err != nil {
		return err
	}
	x.version()
	x.writable()
	x.durability()
	x.replicas()
	x.tables()
	x.secret()
	x.creators()
	x.oldRows(ttl)
	x.timeouts(ttl)
	limit, reserved := x.number("max_connections"), x.number("superuser_reserved_connections")
	x.Headroom("postgres.connections", "max_connections, without those for superusers", x.count["clients"], limit-reserved)
	for _, f := range x.List {
		add(f)
	}
	return nil
}

// rows calls f for each row of a result.
func (d *dialect) rows(ctx context.Context, db *sql.DB, text string, f func(*sql.Rows) error) (err error) {
	text, args := d.Inline(text, nil) // there may be a pooler
	r, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for r.Next() {
		if err := f(r); err != nil {
			return err
		}
	}
	return r.Err()
}

func (x *exam) number(setting string) int64 {
	n, _ := strconv.ParseInt(x.is[setting], 10, 64) // the server's value is a number
	return n
}

func (x *exam) version() {
	const code = "postgres.version"
	if x.number("server_version_num") < 120000 {
		x.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: "the server is PostgreSQL " + x.is["server_version"],
			Why:   "the statements are written for 12 and later; older servers were never tested", Do: "upgrade to 12 or later"})
		return
	}
	x.Fine(code, "PostgreSQL %s", x.is["server_version"])
}

func (x *exam) writable() {
	const code = "postgres.read-only"
	switch {
	case x.count["recovery"] != 0:
		x.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: "the server is a standby, or recovers (pg_is_in_recovery)",
			Why:   "it refuses writes: nothing can be locked here",
			Do:    "name the primary in the URL, or all servers with target_session_attrs=read-write"})
	case x.is["default_transaction_read_only"] == "on":
		x.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: "default_transaction_read_only is on",
			Why: "transactions of this role cannot write: nothing can be locked",
			Do:  "ALTER ROLE … SET default_transaction_read_only = off, or the same for the database or the server"})
	default:
		x.Fine(code, "the server is a primary and takes writes")
	}
}

func (x *exam) durability() {
	const code, pages = "postgres.durability", "postgres.full-page-writes"
	commit := x.is["synchronous_commit"]
	switch {
	case x.is["fsync"] != "on":
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: "fsync is " + x.is["fsync"],
			Why: "a power cut, or a crash of the machine, loses grants that were answered, or the whole database; the server then grants those names again",
			Do:  "fsync = on in postgresql.conf, and reload"})
	case commit == "off":
		x.Fine(code,
			"fsync is on; synchronous_commit is off, but grants and renewals still wait for the disk: their statements ask for that")
	default:
		x.Fine(code, "fsync is on, synchronous_commit is %s", commit)
	}
	if x.is["full_page_writes"] != "on" {
		x.Add(driver.Finding{Code: pages, Severity: driver.Endangers,
			Found: "full_page_writes is " + x.is["full_page_writes"],
			Why:   "a power cut while a page is written can destroy it, and with it the grants",
			Do:    "full_page_writes = on in postgresql.conf, and reload, unless its file system never tears pages"})
		return
	}
	x.Fine(pages, "pages are safe from a power cut while they are written (full_page_writes is on)")
}

func (x *exam) replicas() {
	const code = "postgres.replicas"
	names, commit := x.is["synchronous_standby_names"], x.is["synchronous_commit"]
	const fence = "let the resources check fencing tokens, which keep growing. If none of the standbys ever takes over, or only longer than the longest TTL after " +
		"the primary has stopped, there is no danger"
	switch {
	case x.count["standbys"] == 0 && names == "":
		x.Fine(code, "no standby is connected, so none can take over that lacks the last grants")
	case names == "":
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf(
				"standbys, or others that receive the log, are connected: %d, and synchronous_standby_names is empty",
				x.count["standbys"]),
			Why: "replication is asynchronous: a standby that takes over may not know the last grants, and grants those names again",
			Do:  "synchronous_standby_names = 'ANY 1 (…)', and let only the one of these standbys take over that has received the most. Or " + fence})
	case commit == "local":
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("synchronous_standby_names is %q, but synchronous_commit is local", names),
			Why:   "commits do not wait for a standby: one that takes over may not know the last grants, and gives them out again",
			Do:    "ALTER ROLE … SET synchronous_commit = on, or the same for the database or the server"})
	default:
		x.Fine(code, "a grant is answered when a standby has it (synchronous_standby_names is %q)", names)
	}
}

func (x *exam) tables() {
	const code, vacuum = "postgres.tables", "postgres.autovacuum"
	switch {
	case x.count["unlogged"] > 0:
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("of the tables, %d are unlogged", x.count["unlogged"]),
			Why:   "after a crash of the server they are empty: it has lost the grants and the last tokens, and grants those names again",
			Do:    "ALTER TABLE … SET LOGGED for hf_meta, hf_lock, hf_done and hf_secret"})
	case x.count["tables"] > 0:
		x.Fine(code, "the tables survive a crash of the server")
	}
	if x.is["autovacuum"] != "on" {
		x.Add(driver.Finding{Code: vacuum, Severity: driver.Slows, Found: "autovacuum is " + x.is["autovacuum"],
			Why: "each request writes a new version of a row; nothing removes the old ones, and requests become slower",
			Do:  "autovacuum = on in postgresql.conf, and reload"})
		return
	}
	x.Fine(vacuum, "old versions of rows are removed (autovacuum is on)")
}

// secret checks for roles that can forge wake-ups, though they may not take locks.
func (x *exam) secret() {
	const code = "postgres.secret"
	if who := x.is["readers of the secret"]; who != "" {
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: "roles that may not write to hf_lock may read hf_secret: " + who,
			Why:   "a role that knows the secret can make a waiter believe that it holds the lock",
			Do:    "REVOKE SELECT ON hf_secret, and pg_read_all_data, FROM those roles. If one of them has read it: stop the programs, DROP TABLE hf_secret, holdfast init, and GRANT SELECT ON hf_secret again to the roles that take locks"})
	} else if x.count["tables"] > 0 {
		x.Fine(code, "only superusers, and roles that take locks, may read the secret that seals wake-ups (hf_secret)")
	}
}

func (x *exam) timeouts(ttl time.Duration) {
	const code = "postgres.timeouts"
	ms := func(setting string) time.Duration { return time.Duration(x.number(setting)) * time.Millisecond }
	statement, idle := ms("statement_timeout"), ms("idle_session_timeout")
	const least = time.Second // requests wait for the commit of another, and answers take time
	switch {
	case statement > 0 && statement < least:
		x.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("statement_timeout is %v", statement),
			Why: "requests may have to wait for another's commit: they are cut short, and fail or are repeated",
			Do:  "ALTER ROLE … SET statement_timeout = '5s', or 0"})
	case idle > 0 && idle < max(ttl, 10*time.Second): // a listener is silent for 5 s at a time
		x.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("idle_session_timeout is %v, where leases last %v", idle, ttl),
			Why:   "the server closes connections between two uses; renewals and the listener must connect again each time, and fail when that fails",
			Do:    "ALTER ROLE … SET idle_session_timeout = 0, or several times the TTL"})
	default:
		x.Fine(code, "idle sessions are not closed early, and statements have no short limit")
	}
}
