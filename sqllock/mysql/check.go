package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// least is the shortest statement, in bytes, that a server must accept. The longest renewal has
// about half of that.
const least = 1 << 20

// Check implements [sqllock.Dialect].
func (d *dialect) Check(ctx context.Context, db *sql.DB) (c sqllock.Circumstances, err error) {
	rows, err := db.QueryContext(ctx,
		"SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_single_primary_mode', "+
			"'autocommit', 'sql_mode', 'sql_select_limit', 'tx_isolation', 'transaction_isolation', 'log_bin', 'binlog_format', "+
			"'character_set_connection', 'max_allowed_packet', 'wait_timeout', 'version')")
	if err != nil {
		return c, err
	}
	defer func() { _ = rows.Close() }()
	vars := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return c, err
		}
		vars[strings.ToLower(name)] = strings.ToUpper(value)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return c, err
	}
	idle, _ := strconv.ParseInt(vars["wait_timeout"], 10, 64)
	d.idle.Store(idle)
	var apart int64 // difference between the statements' clock and the server's
	if err := db.QueryRowContext(ctx, "SELECT ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE()))").Scan(&apart); err != nil {
		return c, err
	}
	var wait string // as seen by a statement with its own limit
	err = db.QueryRowContext(ctx, "SET STATEMENT innodb_lock_wait_timeout = "+rowWait+
		" FOR SELECT @@innodb_lock_wait_timeout").Scan(&wait)
	if err != nil && answer(err) == 0 {
		return c, err
	}
	d.bounds.Store(err == nil && wait == rowWait)
	var major, minor int
	_, err = fmt.Sscanf(vars["version"], "%d.%d", &major, &minor)
	d.returns.Store(err == nil && strings.Contains(vars["version"], "MARIADB") &&
		(major > 10 || major == 10 && minor >= 5))
	// Other logs have a warning for each INSERT that takes its rows from a SELECT (STATEMENT), or the
	// whole queue twice, where an UPDATE is a short statement (MIXED).
	d.shows.Store(d.returns.Load() && (vars["log_bin"] != "ON" || vars["binlog_format"] == "ROW"))
	if apart > int64(time.Minute/time.Second) {
		return c, fmt.Errorf("%w: the pool's connections have their own clock (SET timestamp): use a pool without it",
			driver.ErrRefused)
	}
	return judge(vars)
}

// judge evaluates these variables, in upper case, of a server and a connection of the pool.
func judge(vars map[string]string) (c sqllock.Circumstances, err error) {
	switch {
	case vars["wsrep_on"] == "ON":
		c.NoPush = "the server is a node of a Galera cluster: waiters may be connected to another node, where they cannot be woken from here"
	case vars["group_replication_single_primary_mode"] == "OFF":
		c.NoPush = "the group has several primaries: waiters may be connected to another one, where they cannot be woken from here"
	}
	isolation := vars["transaction_isolation"] + vars["tx_isolation"] // the name depends on the version; some have both
	packet, _ := strconv.Atoi(vars["max_allowed_packet"])             // 0: unknown
	if packet > 0 {
		c.MaxText = packet / 4 // text is sent in hexadecimal, and grows when places become grants
	}
	selectLimit, limitErr := strconv.ParseUint(vars["sql_select_limit"], 10, 64)
	refuse := func(format string, args ...any) (sqllock.Circumstances, error) {
		return c, fmt.Errorf("%w: the pool's connections have "+format, append([]any{driver.ErrRefused}, args...)...)
	}
	switch {
	case vars["autocommit"] == "OFF":
		return refuse("autocommit=0, so nothing would ever be committed: use a pool with autocommit=1")
	case strings.Contains(isolation, "READ-UNCOMMITTED"):
		return refuse(
			"the isolation level READ UNCOMMITTED, which shows grants that may be rolled back: use a pool with another")
	case strings.Contains(vars["sql_mode"], "EMPTY_STRING_IS_NULL"):
		return refuse("the sql_mode EMPTY_STRING_IS_NULL: use a pool without it")
	case strings.HasPrefix(vars["character_set_connection"], "UTF16"),
		strings.HasPrefix(vars["character_set_connection"], "UTF32"),
		vars["character_set_connection"] == "UCS2":
		return refuse(
			"character_set_connection=%s: use a pool with utf8mb4, or another in which ASCII text has one byte per character",
			strings.ToLower(vars["character_set_connection"]))
	case vars["sql_select_limit"] != "" && limitErr == nil && selectLimit < 1000:
		return refuse("sql_select_limit=%d: at least 1000 is needed", selectLimit)
	case packet > 0 && packet < least:
		return refuse("max_allowed_packet=%d: at least %d is needed", packet, least)
	case vars["log_bin"] == "ON" && vars["binlog_format"] == "STATEMENT" && strings.Contains(isolation, "READ-COMMITTED"):
		return refuse(
			"binlog_format=STATEMENT and the isolation level READ COMMITTED, with which the server refuses changes: " +
				"use a pool with REPEATABLE READ, or binlog_format=ROW or MIXED")
	}
	return c, nil
}
