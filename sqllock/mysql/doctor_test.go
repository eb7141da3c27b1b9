package mysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	godriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

const durable = "--innodb-flush-log-at-trx-commit=1"

// diagnose returns the findings by code, one for each, and one text of those that are not fine.
func diagnose(t testing.TB, db *sql.DB, d sqllock.Dialect, ttl time.Duration) (
	by map[string]driver.Finding, unlike string) {
	t.Helper()
	b := sqllock.New(db, d, nil)
	defer func() { _ = b.Close() }()
	list, err := b.Diagnose(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	by = map[string]driver.Finding{}
	var all []string
	for _, f := range list {
		if _, twice := by[f.Code]; twice {
			t.Errorf("%s comes twice", f.Code)
		}
		if f.Found == "" || (f.Severity != driver.Fine) != (f.Why != "" && f.Do != "") {
			t.Errorf("incomplete: %+v", f)
		}
		if by[f.Code] = f; f.Severity != driver.Fine && f.Code != "mysql.latency" { // latency depends on the machine
			all = append(all, strings.TrimPrefix(f.Code, "mysql.")+" "+f.Severity.String())
		}
	}
	slices.Sort(all)
	return by, strings.Join(all, ", ")
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	server := maria(t, durable)
	db := pool(t, server.DSN("root", ""))
	by, unlike := diagnose(t, db, mysql.Dialect(), 15*time.Second)
	if unlike != "" || len(by) != 16 {
		t.Errorf("not fine: %q, of %d: %v", unlike, len(by), by)
	}
	// A user with the documented rights gets the same findings.
	grant(server, "app", "hf_meta", "hf_lock", "hf_done", "hf_bell", "hf_history")
	few := pool(t, server.DSN("app", ""))
	if _, unlike := diagnose(t, few, mysql.Dialect(), 15*time.Second); unlike != "" {
		t.Errorf("as a user with few rights, not fine: %q", unlike)
	}
	_ = few.Close()
	for _, c := range []struct{ set, back, params, want, says string }{
		{"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "",
			"durability endangers", "a crash of the machine,"},
		{"SET GLOBAL innodb_flush_log_at_trx_commit = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "",
			"durability endangers", "a crash of the server"},
		{"SET GLOBAL innodb_flush_log_at_trx_commit = 3", "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "", "", ""},
		{"SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF", "", "read-only endangers", "name the primary"},
		{"DO 0", "DO 0", "?wait_timeout=5", "timeouts slows", "wait_timeout is 5s, where leases last 15s"},
		{"DO 0", "DO 0", "?max_statement_time=1", "timeouts slows, wakeups slows", "ended after 1 s"},
		{"SET GLOBAL max_connections = 11", "SET GLOBAL max_connections = 200", "", "connections slows",
			"raise max_connections"},
		{"ALTER TABLE hf_done ENGINE=Aria", "ALTER TABLE hf_done ENGINE=InnoDB", "", "engine endangers", "hf_done is aria"},
	} {
		server.Exec(c.set)
		db := pool(t, server.DSN("root", "")+c.params)
		by, unlike := diagnose(t, db, mysql.Dialect(), 15*time.Second)
		if c.params == "?max_statement_time=1" { // one second may or may not be enough to be woken
			unlike = strings.TrimSuffix(unlike, ", wakeups slows")
			c.want = "timeouts slows"
		}
		if unlike != c.want || !strings.Contains(fmt.Sprint(by), c.says) {
			t.Errorf("%s%s: not fine: %q, want %q, with %q: %v", c.set, c.params, unlike, c.want, c.says, by)
		}
		_ = db.Close()
		server.Exec(c.back)
	}
	// The dialect has a reason why waiters cannot be woken, and hides that it is an Examiner.
	by, unlike = diagnose(t, db, noPush{mysql.Dialect()}, 15*time.Second)
	if f := by["mysql.wakeups"]; unlike != "wakeups slows" || !strings.Contains(f.Found, "it is said so") {
		t.Errorf("where nobody can be woken, not fine: %q, %+v", unlike, f)
	}
}

// The server's clock, as its statements see it, is wrong, or jumps between two looks.
func TestDoctorClock(t *testing.T) {
	t.Parallel()
	const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	server := maria(t, durable)
	db := pool(t, server.DSN("root", ""))
	run(t, db, "CREATE TABLE jump (one INT PRIMARY KEY, n BIGINT NOT NULL)", "INSERT INTO jump VALUES (1, 0)",
		"CREATE FUNCTION later(step BIGINT) RETURNS BIGINT NOT DETERMINISTIC MODIFIES SQL DATA BEGIN DECLARE was BIGINT; SELECT n INTO was FROM jump; UPDATE jump SET n = n + step; RETURN was; END")
	for clock, want := range map[string]struct {
		severity driver.Severity
		says     string
	}{
		now + " - 60000000":                              {driver.Unclear, "behind"},
		now + " + 60000000":                              {driver.Slows, "ahead"},
		now + " + 1000000":                               {driver.Fine, "agrees"},
		now + " + later(20000000)":                       {driver.Endangers, "went on by "},
		now + " + later(-20000000)":                      {driver.Endangers, "went back by "},
		now + " + (" + now + ") DIV 2 - 900000000000000": {driver.Endangers, "went on by"}, // too fast
	} {
		by, _ := diagnose(t, db, mysql.DialectAt(clock), 15*time.Second)
		if f := by["mysql.clock"]; f.Severity != want.severity || !strings.Contains(f.Found, want.says) {
			t.Errorf("%s: %+v, want %v, %q", clock, f, want.severity, want.says)
		}
		run(t, db, "UPDATE jump SET n = 0")
	}
}

func TestDoctorReplicas(t *testing.T) {
	t.Parallel()
	primary := maria(t, durable, "--log-bin=log", "--server-id=1", "--sync-binlog=1")
	db := pool(t, primary.DSN("root", ""))
	_, unlike := diagnose(t, db, mysql.Dialect(), 15*time.Second)
	if unlike != "" {
		t.Errorf("with a log and no replica, not fine: %q", unlike)
	}
	replica := testenv.MariaDB(t, "--server-id=2", "--relay-log=relay")
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica.Exec(
		fmt.Sprintf("CHANGE MASTER TO master_host='%s', master_port=%s, master_user='root', master_use_gtid=slave_pos", host,
			port), "START SLAVE")
	follows(t, primary, replica)
	if by, unlike := diagnose(t, db, mysql.Dialect(), 15*time.Second); unlike != "replicas endangers" {
		t.Errorf("with a replica, not fine: %q %v", unlike, by)
	}
	primary.Exec("SET GLOBAL rpl_semi_sync_master_enabled = ON")
	by, unlike := diagnose(t, db, mysql.Dialect(), 15*time.Second)
	if f := by["mysql.replicas"]; unlike != "replicas unknown" || f.Danger() {
		t.Errorf("with one that confirms, not fine: %q", unlike)
	} else if !strings.Contains(f.Why, "replaced") {
		t.Errorf("with one that confirms, or is not waited for after 10 s: %+v", f)
	}
	primary.Exec("SET GLOBAL rpl_semi_sync_master_timeout = 3600000")
	if by, _ := diagnose(t, db, mysql.Dialect(), 15*time.Second); strings.Contains(by["mysql.replicas"].Why, "replaced") {
		t.Errorf("with one that is waited for: %+v", by["mysql.replicas"])
	}
	primary.Exec("SET GLOBAL rpl_semi_sync_master_enabled = OFF", "SET GLOBAL sync_binlog = 0")
	_, unlike = diagnose(t, db, mysql.Dialect(), 15*time.Second)
	if unlike != "durability endangers, replicas endangers" {
		t.Errorf("with a log that is not forced to the disk, not fine: %q", unlike)
	}
	// Connections that lead to different servers in turn.
	spread := &inTurn{}
	for _, s := range []*testenv.MariaDBServer{primary, replica} {
		cfg, err := godriver.ParseDSN(s.DSN("root", ""))
		if err != nil {
			t.Fatal(err)
		}
		c, err := godriver.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		spread.all = append(spread.all, c)
	}
	both := sql.OpenDB(spread)
	defer func() { _ = both.Close() }()
	eventually(t, "two servers are found", func() bool { // unless the second connection takes a second
		by, _ = diagnose(t, both, mysql.Dialect(), 15*time.Second)
		return by["mysql.one-server"].Severity == driver.Endangers
	})
	if f := by["mysql.one-server"]; strings.Count(f.Found, ";") != 1 {
		t.Errorf("two servers: %+v", f)
	}
}

// inTurn connects to one server after the other.
type inTurn struct {
	all []sqldriver.Connector
	n   atomic.Int64
}

func (c *inTurn) Connect(ctx context.Context) (sqldriver.Conn, error) {
	return c.all[int(c.n.Add(1))%len(c.all)].Connect(ctx)
}

func (c *inTurn) Driver() sqldriver.Driver { return c.all[0].Driver() }

// A condition that prevents all locking is an error, returned after the earlier findings.
func TestDoctorErrors(t *testing.T) {
	t.Parallel()
	server := testenv.MariaDB(t)
	db := pool(t, server.DSN("root", ""))
	ask := func(db *sql.DB) ([]driver.Finding, error) {
		b := sqllock.New(db, mysql.Dialect(), nil)
		defer func() { _ = b.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return b.Diagnose(ctx, 15*time.Second)
	}
	list, err := ask(db)
	found := slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Code == "mysql.durability" && f.Severity == driver.Endangers
	})
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "holdfast init") || !found {
		t.Errorf("without tables: %v, %v", list, err)
	}
	initialise(t, server.DSN("root", ""))
	small := pool(t, server.DSN("root", ""))
	small.SetMaxOpenConns(2)
	if _, err := ask(small); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a pool of two: %v, want ErrInvalid", err)
	}
	if _, err := ask(pool(t, server.DSN("nobody", ""))); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("an unknown user: %v, want ErrRefused", err)
	}
	server.Kill()
	if _, err := ask(pool(t, server.DSN("root", ""))); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a server that is gone: %v, want ErrUnavailable", err)
	}
	b := sqllock.New(db, mysql.Dialect(), nil)
	_ = b.Close()
	if _, err := b.Diagnose(t.Context(), time.Second); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closed: %v, want ErrClosed", err)
	}
}
