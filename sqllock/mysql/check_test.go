package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// A test cannot start these clusters, so this tests only how their variables are judged.
func TestJudgeClusters(t *testing.T) {
	for name, c := range map[string]struct {
		vars   map[string]string
		noPush bool
	}{
		"single":                 {map[string]string{"autocommit": "ON"}, false},
		"Galera off":             {map[string]string{"wsrep_on": "OFF"}, false},
		"Galera":                 {map[string]string{"wsrep_on": "ON"}, true},
		"group of one primary":   {map[string]string{"group_replication_single_primary_mode": "ON"}, false},
		"group of all primaries": {map[string]string{"group_replication_single_primary_mode": "OFF"}, true},
	} {
		got, err := judge(c.vars)
		if err != nil || (got.NoPush != "") != c.noPush {
			t.Errorf("%s: %+v, %v; want noPush: %v", name, got, err, c.noPush)
		}
	}
}

// Version 8 has another name for the isolation level than the server of the other tests.
func TestJudgeIsolation(t *testing.T) {
	for _, variable := range []string{"tx_isolation", "transaction_isolation"} {
		for level, refused := range map[string]bool{
			"READ-UNCOMMITTED": true, "READ-COMMITTED": false, "REPEATABLE-READ": false, "SERIALIZABLE": false,
		} {
			if _, err := judge(map[string]string{variable: level}); errors.Is(err, driver.ErrRefused) != refused {
				t.Errorf("%s=%s: %v; want refused: %v", variable, level, err, refused)
			}
		}
	}
}

// Errors that the server of the other tests does not return.
func TestFault(t *testing.T) {
	said := func(number uint16) error { return fmt.Errorf("said: %w", &mysql.MySQLError{Number: number}) }
	for _, c := range []struct {
		err  error
		want sqllock.Fault
	}{
		{said(3101), sqllock.Again},   // a member of a group was overruled at its commit
		{said(1047), sqllock.NotDone}, // a node of a cluster that has no quorum
		{said(3032), sqllock.NotDone}, // offline mode
		{said(4031), sqllock.NotDone}, // disconnected for inactivity
		{said(1053), sqllock.Unknown}, // shutting down
		{said(1180), sqllock.Unknown}, // a node lost its cluster during a commit
		{said(1836), sqllock.Refused}, // read-only
		{said(1045), sqllock.Refused}, // access denied
		{said(1146), sqllock.NoSchema},
		{mysql.ErrPktTooLarge, sqllock.Refused},
		{mysql.ErrInvalidConn, sqllock.Unknown},
		{context.DeadlineExceeded, sqllock.Unknown},
		{sqldriver.ErrBadConn, sqllock.NotDone},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, sqllock.NotDone},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, sqllock.Unknown},
	} {
		if got := newDialect(now).Fault(c.err); got != c.want {
			t.Errorf("%v: %d; want %d", c.err, got, c.want)
		}
	}
}

// Text with question marks is an argument like any other.
func TestInline(t *testing.T) {
	text, rest := newDialect(now).Inline("SELECT ? FROM x WHERE a = ? AND b = ? AND c = ?",
		[]any{"?'\x00", []byte{}, int64(-1) << 63, 7})
	const want = "SELECT x'3f2700' FROM x WHERE a = x'' AND b = -9223372036854775808 AND c = 7"
	if text != want || len(rest) != 0 {
		t.Errorf("%q, %v; want %q", text, rest, want)
	}
}

// MySQL has no limit for one statement's wait for a row, unlike MariaDB.
func TestDoctorRowWait(t *testing.T) {
	for _, c := range []struct {
		version, wait string
		want          driver.Severity
	}{
		{"8.0.36", "50", driver.Slows},
		{"8.0.36", "2", driver.Fine},
		{"10.11.6-mariadb", "50", driver.Fine},
	} {
		x := &exam{vars: map[string]string{"version": c.version, "innodb_lock_wait_timeout": c.wait, "wait_timeout": "28800"}}
		x.timeouts(15 * time.Second)
		if len(x.List) != 1 || x.List[0].Severity != c.want {
			t.Errorf("%s, %s s: %+v; want %v", c.version, c.wait, x.List, c.want)
		}
	}
}
