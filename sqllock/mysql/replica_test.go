package mysql_test

import (
	"database/sql"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// In each format of the binary log, a replica gets the same rows, and continues after a restart.
func TestReplica(t *testing.T) {
	t.Parallel()
	formats := []string{"MIXED", "ROW", "STATEMENT"}
	for i, format := range formats[:testenv.Rounds(1, len(formats))] {
		t.Run(format, func(t *testing.T) {
			primary := testenv.MariaDB(t, "--log-bin=log", "--server-id=1", "--binlog-format="+format)
			replica := testenv.MariaDB(t, "--log-bin=log", "--log-slave-updates", fmt.Sprint("--server-id=", 2+i),
				"--relay-log=relay", "--binlog-format="+format)
			host, port, _ := net.SplitHostPort(primary.Addr)
			replica.Exec(
				fmt.Sprintf("CHANGE MASTER TO master_host='%s', master_port=%s, master_user='root', master_use_gtid=slave_pos",
					host, port), "START SLAVE")
			initialise(t, primary.DSN("root", ""))
			operations(t, primary.DSN("root", ""))
			follows(t, primary, replica)

			holder, waiter := join(t, primary.DSN("root", ""), time.Minute), join(t, primary.DSN("root", ""), time.Minute)
			h, r := holder.get(holder.req("x")), waiter.req("x")
			rep := waiter.refused(r)
			follows(t, primary, replica)
			replica.Restart(true)
			holder.release(h)
			waiter.release(waiter.served(r, rep))
			if format != "ROW" {
				isShort(t, primary, holder, waiter)
			}
			waiter.close()
			operations(t, primary.DSN("root", ""))
			follows(t, primary, replica)
		})
	}
}

// isShort checks that the log of a hand-over does not have the queue.
func isShort(t *testing.T, primary *testenv.MariaDBServer, holder, waiter *client) {
	t.Helper()
	h := holder.get(holder.req("long"))
	for range 300 {
		waiter.refused(waiter.req("long"))
	}
	db := pool(t, primary.DSN("root", ""))
	logged := func() (end int) {
		var file, do, ignore string
		if err := db.QueryRowContext(t.Context(), "SHOW MASTER STATUS").Scan(&file, &end, &do, &ignore); err != nil {
			t.Fatal(err)
		}
		return end
	}
	before, length := logged(), value[int](t, db, "SELECT LENGTH(line) FROM hf_lock WHERE name = 'long'")
	holder.release(h)
	if n := logged() - before; n > length/2 {
		t.Errorf("a hand-over with %d bytes in the queue has %d bytes in the log", length, n)
	}
}

// catchesUp waits until the replica has what the primary has now.
func catchesUp(t *testing.T, primary, replica *testenv.MariaDBServer) {
	t.Helper()
	p, r := pool(t, primary.DSN("root", "")), pool(t, replica.DSN("root", ""))
	at := value[string](t, p, "SELECT @@gtid_binlog_pos")
	if value[int](t, r, "SELECT MASTER_GTID_WAIT(?, 60)", at) != 0 {
		t.Fatalf("the replica does not follow: %s", failure(t, r))
	}
}

// follows waits until the replica has caught up, and compares the locks. Nobody may use them meanwhile.
func follows(t *testing.T, primary, replica *testenv.MariaDBServer) {
	t.Helper()
	catchesUp(t, primary, replica)
	p, r := pool(t, primary.DSN("root", "")), pool(t, replica.DSN("root", ""))
	const all = "SELECT CONCAT(COUNT(*), ' rows, ', COALESCE(MD5(GROUP_CONCAT(CONCAT_WS(',', HEX(name), kind, lim, counter, token, ver, at, hid, hsession, " +
		"since, expires, keep, busy, kept, info, waiting, due, HEX(line), HEX(more)) ORDER BY name)), '')) FROM hf_lock"
	if want, got := value[string](t, p, all), value[string](t, r, all); got != want {
		t.Errorf("the replica has %s; the primary %s", got, want)
	}
}

// failure returns why the replica has stopped.
func failure(t *testing.T, r *sql.DB) string {
	t.Helper()
	rows, err := r.QueryContext(t.Context(), "SHOW SLAVE STATUS")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, _ := rows.Columns()
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	why := ""
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for i, c := range columns {
			if c == "Last_Error" || c == "Last_IO_Error" {
				why += c + ": " + values[i].String + "\n"
			}
		}
	}
	return why
}
