package faults

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// TestDatabaseFailover: a database's primary dies, and its replica takes its address. What the replica has received goes on.
// What it has not is forgotten: the lock is given away beside its holder, as the documents say, who is told by its next
// renewal; the tokens grow all the same, so that the resource refuses it until then.
func TestDatabaseFailover(t *testing.T) {
	t.Parallel()
	// The replica is known by the clients' address alone.
	start := func(t *testing.T) (s *site, stop func(), fail func() time.Time) {
		t.Helper()
		primary := testenv.MariaDB(t, "--log-bin=log", "--server-id=1")
		replica := testenv.MariaDB(t, "--log-bin=log", "--server-id=2", "--log-slave-updates")
		host, port, _ := net.SplitHostPort(primary.Addr)
		replica.Exec(fmt.Sprintf("CHANGE MASTER TO master_host='%s', master_port=%s, master_user='root', master_use_gtid=slave_pos", host, port), "START SLAVE")
		way := testenv.Proxy(t, primary.Addr)
		s = databaseSite(t, primary, "mysql", primary.DSNAt(way.Addr, "root", ""), mysql.Dialect)
		from, to := pool(t, "mysql", primary.DSN("root", "")), pool(t, "mysql", replica.DSN("root", ""))
		stop = func() { // following, when it has all that the primary has
			t.Helper()
			var at string
			var missed int
			if err := from.QueryRowContext(limited(t), "SELECT @@gtid_binlog_pos").Scan(&at); err != nil {
				t.Fatal(err)
			}
			if err := to.QueryRowContext(limited(t), "SELECT MASTER_GTID_WAIT(?, 20)", at).Scan(&missed); err != nil || missed != 0 {
				t.Fatalf("the replica does not follow: %v", err)
			}
			replica.Exec("STOP SLAVE")
		}
		return s, stop, func() time.Time {
			primary.Kill()
			way.Lead(replica.Addr)
			return time.Now()
		}
	}
	t.Run("received", func(t *testing.T) {
		t.Parallel()
		s, stop, fail := start(t)
		c := s.scene()
		stop()
		failed := fail()
		c.keeps(failed.Add(lasting))
		c.passesOn()
		t.Logf("the holder kept it")
	})
	t.Run("not received", func(t *testing.T) {
		t.Parallel()
		s, stop, fail := start(t)
		first := s.client()
		before := s.lock(first, name)
		if err := before.Release(); err != nil {
			t.Fatal(err)
		}
		stop()
		c := s.scene()
		c.exclusive = false
		resource := &guarded{}
		if !resource.write(c.held.Token()) {
			t.Error("the resource refuses its first holder")
		}
		failed := fail()
		next := c.served()
		granted := time.Since(failed)
		if !resource.write(next.Token()) || resource.write(c.held.Token()) {
			t.Error("the resource takes what it should refuse, or the reverse")
		}
		toldByRenewal(t, c.held, c.beats, failed)
		t.Logf("granted again after %v, the holder was told after %v", granted, time.Since(failed))
		c.release(next)
	})
}
