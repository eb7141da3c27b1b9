package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
	"github.com/holdfast-lock/holdfast/sqllock"
)

var _ sqllock.Examiner = (*dialect)(nil)

// Whoami implements [sqllock.Examiner].
func (d *dialect) Whoami() string { return "SELECT " + host }

// examined are the variables that matter, and countable the status values.
var (
	examined = []string{"version", "version_comment", "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "log_bin",
		"sync_binlog", "binlog_format",
		"read_only", "super_read_only", "wsrep_on", "group_replication_single_primary_mode", "max_connections",
		"wait_timeout", "sql_mode",
		"rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled",
		"rpl_semi_sync_master_timeout", "rpl_semi_sync_source_timeout", "max_statement_time", "max_execution_time",
		"innodb_lock_wait_timeout"}
	countable = []string{"Threads_connected", "Slaves_connected", "wsrep_cluster_size"}
)

// exam is one examination.
type exam struct {
	doctor.Findings
	ask    func(ctx context.Context, text string) (*sql.Rows, error)
	vars   map[string]string // in lower case; of a connection of the pool
	global map[string]string
	status map[string]string
}

// Examine implements [sqllock.Examiner].
func (d *dialect) Examine(ctx context.Context, db *sql.DB, ttl time.Duration, add func(driver.Finding)) error {
	x := &exam{ask: func(ctx context.Context, text string) (*sql.Rows, error) { return db.QueryContext(ctx, text) }}
	defer func() {
		for _, f := range x.List {
			add(f)
		}
	}()
	for _, q := range []struct {
		to    *map[string]string
		what  string
		names []string
	}{{&x.vars, "SESSION VARIABLES", examined}, {&x.global, "GLOBAL VARIABLES", examined},
		{&x.status, "GLOBAL STATUS", countable}} {
		var err error
		if *q.to, err = x.table(ctx, "SHOW "+q.what+" WHERE Variable_name IN ('"+strings.Join(q.names, "', '")+
			"')"); err != nil {
			return err
		}
	}
	x.version()
	x.durability()
	if err := x.replicas(ctx); err != nil {
		return err
	}
	x.readOnly()
	x.timeouts(ttl)
	if limit, err := strconv.ParseInt(x.global["max_connections"], 10, 64); err == nil {
		used, _ := strconv.ParseInt(x.status["threads_connected"], 10, 64)
		x.Headroom("mysql.connections", "max_connections", used, limit)
	}
	return x.engines(ctx)
}

// table reads a result of two columns.
func (x *exam) table(ctx context.Context, text string) (m map[string]string, err error) {
	rows, err := x.ask(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	m = map[string]string{}
	for rows.Next() {
		var k string
		var v sql.NullString
		if err := rows.Scan(&k, &v); err != nil {
			return nil, err
		}
		m[strings.ToLower(k)] = strings.ToLower(v.String)
	}
	return m, rows.Err()
}

func (x *exam) maria() bool {
	return strings.Contains(x.vars["version"]+x.vars["version_comment"], "mariadb")
}

func (x *exam) version() {
	const code = "mysql.version"
	version, maria := x.vars["version"], x.maria()
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	switch {
	case err == nil && maria && (major > 10 || major == 10 && minor >= 6), err == nil && !maria && major >= 8:
		x.Fine(code, "the server is %s (%s)", version, x.vars["version_comment"])
	default:
		x.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: fmt.Sprintf("the server is %s (%s)", version, x.vars["version_comment"]),
			Why:   "the statements are written for MySQL 8 and tested with MariaDB 10.11; older servers were never tested",
			Do:    "upgrade to MySQL 8, or MariaDB 10.6 or later"})
	}
}

func (x *exam) durability() {
	const code = "mysql.durability"
	flush, sync := x.global["innodb_flush_log_at_trx_commit"], x.global["sync_binlog"]
	switch {
	case flush != "1" && flush != "3": // MariaDB's 3 is 1, with the group commit of earlier versions
		lost := "a power cut, or a crash of the machine,"
		if flush == "0" {
			lost = "a crash of the server, or a power cut,"
		}
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: "innodb_flush_log_at_trx_commit is " + flush,
			Why: lost + " loses about the last second of grants, and the server grants those names again",
			Do:  "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in the server's configuration"})
	case x.global["log_bin"] == "on" && sync != "1":
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("innodb_flush_log_at_trx_commit is %s, but there is a binary log (log_bin) and sync_binlog is %s",
				flush, sync),
			Why: "after a power cut, or a crash of the machine, InnoDB rolls back what the binary log lacks: the last grants, and the server grants those names again",
			Do:  "SET GLOBAL sync_binlog = 1, and the same in the server's configuration"})
	default:
		x.Fine(code,
			"commits are on the disk when they are answered (innodb_flush_log_at_trx_commit is %s, log_bin is %s, sync_binlog is %s)", flush, x.global["log_bin"], sync)
	}
	if v := x.global["innodb_doublewrite"]; v == "off" || v == "0" {
		x.Add(driver.Finding{Code: "mysql.doublewrite", Severity: driver.Endangers, Found: "innodb_doublewrite is off",
			Why: "a power cut while a page is written can destroy it, and with it the grants",
			Do:  "innodb_doublewrite=ON in the server's configuration, unless its file system never tears pages"})
	} else {
		x.Fine("mysql.doublewrite", "pages are safe from a power cut while they are written (innodb_doublewrite is %s)", v)
	}
}

// replicas checks servers that might take over.
func (x *exam) replicas(ctx context.Context) error {
	const code = "mysql.replicas"
	if x.global["wsrep_on"] == "on" {
		if x.status["wsrep_cluster_size"] == "1" {
			x.Fine(code, "the server is the only node of its Galera cluster")
			return nil
		}
		x.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: fmt.Sprintf(
				"the server is a node of a Galera cluster (wsrep_cluster_size is %s); whether clients use other nodes is not visible from here", x.status["wsrep_cluster_size"]),
			Why: "a commit that is answered is at all nodes, but each judges leases by its own clock: one whose clock is ahead ends them early",
			Do:  "connect all clients of these locks to one node, and to another only when that is gone; keep the nodes' clocks together (NTP)"})
		return nil
	}
	if x.global["log_bin"] != "on" {
		x.Fine(code, "the server has no binary log, so no replica can take over that lacks the last grants")
		return nil
	}
	connected, known := x.status["slaves_connected"]
	if !known {
		n, err := x.dumps(ctx)
		if err != nil {
			var said *mysql.MySQLError
			if !errors.As(err, &said) {
				return err
			}
			x.Add(driver.Finding{Code: code, Severity: driver.Unclear, MayEndanger: true,
				Found: "it is unknown whether the server has replicas: " + err.Error(),
				Why:   "replication is asynchronous: a replica that takes over may not know the last grants",
				Do:    "ask an administrator for the answer to SHOW REPLICAS"})
			return nil
		}
		connected = strconv.Itoa(n)
	}
	switch {
	case connected == "0":
		x.Fine(code, "the server has no replicas, so none can take over that lacks the last grants")
	case x.global["rpl_semi_sync_master_enabled"] == "on" || x.global["rpl_semi_sync_source_enabled"] == "on":
		x.semiSynchronous(code, connected)
	default:
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("the server has replicas: %s, and semi-synchronous replication is off", connected),
			Why:   "a replica that takes over may not know the last grants, and grants those names again",
			Do: "let the resources check fencing tokens, which keep growing; semi-synchronous replication narrows the risk. If none of the replicas ever takes over, or only " +
				"longer than the longest TTL after the primary has stopped, there is no danger"})
	}
	return nil
}

// semiSynchronous checks replicas that confirm commits, until the server has waited in vain for a
// while.
func (x *exam) semiSynchronous(code, connected string) {
	const enough = time.Hour
	ms, _ := strconv.ParseInt(cmp.Or(x.global["rpl_semi_sync_master_timeout"], x.global["rpl_semi_sync_source_timeout"]),
		10, 64)
	timeout := time.Duration(ms) * time.Millisecond
	f := driver.Finding{Code: code, Severity: driver.Unclear,
		Found: fmt.Sprintf(
			"the server has replicas: %s, with semi-synchronous replication, and continues without it when none confirms for %v",
			connected, timeout),
		Why: "while it is in force one of the replicas has each grant; the failover decides whether that one takes over",
		Do:  "let only a replica take over that has confirmed and applied the last commits"}
	if timeout < enough {
		f.Why = "after that time, a replaced server that clients still reach grants and renews again, while the new one does too"
		f.Do = "rpl_semi_sync_master_timeout (MySQL: rpl_semi_sync_source_timeout) of an hour or more, so that a server without replicas grants nothing; " + f.Do
	}
	x.Add(f)
}

// dumps counts replicas as MySQL reports them, to users with replication rights.
func (x *exam) dumps(ctx context.Context) (n int, err error) {
	rows, err := x.ask(ctx, "SHOW REPLICAS")
	if err != nil {
		return 0, err
	}
	for rows.Next() {
		n++
	}
	return n, errors.Join(rows.Err(), rows.Close())
}

func (x *exam) readOnly() {
	const code = "mysql.read-only"
	if x.global["read_only"] == "on" || x.global["super_read_only"] == "on" {
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: "the server is read-only (read_only is on)",
			Why: "it is a replica, or was one: it refuses other users, and its primary does not get this user's writes",
			Do:  "name the primary in the URL"})
		return
	}
	x.Fine(code, "the server takes writes")
}

func (x *exam) timeouts(ttl time.Duration) {
	const code = "mysql.timeouts"
	seconds, _ := strconv.ParseFloat(x.vars["wait_timeout"], 64)
	idle := time.Duration(seconds * float64(time.Second))
	rows, _ := strconv.Atoi(x.vars["innodb_lock_wait_timeout"])
	limit, _ := strconv.ParseFloat(x.vars["max_statement_time"], 64) // seconds; MariaDB
	if ms, err := strconv.ParseFloat(x.vars["max_execution_time"], 64); err == nil {
		limit = ms / 1000 // MySQL
	}
	switch {
	case idle > 0 && idle < ttl:
		x.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("wait_timeout is %v, where leases last %v", idle, ttl),
			Why:   "the server closes connections between two uses; renewals and wake-ups must connect again each time, and fail when that fails",
			Do:    "wait_timeout of several times the TTL for the connections of this pool, or the default, 28800"})
	case limit > 0 && limit < 2:
		x.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("statements are ended after %g s (max_statement_time, max_execution_time)", limit),
			Why:   "waiters sleep in a statement for a second at a time, and requests may wait for another's commit: they fail, and are repeated",
			Do:    "a limit of 5 s or more for this user, or none"})
	case rows > 5 && !x.maria():
		x.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("a statement waits for a row for up to %d s (innodb_lock_wait_timeout)", rows),
			Why:   "MySQL has no limit for one statement: a statement that waits for a locked row keeps its connection after its caller has given up",
			Do:    "innodb_lock_wait_timeout=2 as a parameter of the pool's address, or on the server for all"})
	default:
		x.Fine(code, "idle connections last %v (wait_timeout), and statements have no short limit", idle)
	}
}

// engines checks the tables' storage engines, if the tables exist.
func (x *exam) engines(ctx context.Context) error {
	const code = "mysql.engine"
	tables, err := x.table(ctx,
		"SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ('hf_meta', 'hf_lock', 'hf_done', 'hf_bell')")
	if err != nil || len(tables) == 0 {
		return err
	}
	var others []string
	for name, engine := range tables {
		if engine != "innodb" {
			others = append(others, fmt.Sprintf("%s is %s", name, engine))
		}
	}
	if len(others) == 0 {
		x.Fine(code, "the tables use InnoDB")
		return nil
	}
	slices.Sort(others)
	x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
		Found: "not all tables use InnoDB: " + strings.Join(others, ", "),
		Why:   "several clients decide about one row at a time, and decisions must survive a crash: that needs transactions",
		Do:    "stop all clients, then ALTER TABLE … ENGINE=InnoDB for each of them"})
	return nil
}
