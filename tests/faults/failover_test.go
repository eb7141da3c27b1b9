package faults

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// TestDatabaseFailover: a database's primary dies, and its replica takes over its address. Grants
// that the replica has received continue. Others are forgotten, as the documents say: the lock is
// granted again while its holder still trusts its lease, until the holder's next renewal. Tokens
// grow nevertheless, so the resource refuses the holder until then.
func TestDatabaseFailover(t *testing.T) {
	t.Parallel()
	// The replica is known only by the address that clients use.
	start := func(t *testing.T) (s *site, stop func(), fail func() time.Time) {
		t.Helper()
		primary := testenv.MariaDB(t, "--log-bin=log", "--server-id=1")
		replica := testenv.MariaDB(t, "--log-bin=log", "--server-id=2", "--log-slave-updates")
		host, port, _ := net.SplitHostPort(primary.Addr)
		replica.Exec(
			fmt.Sprintf("CHANGE MASTER TO master_host='%s', master_port=%s, master_user='root', master_use_gtid=slave_pos", host,
				port), "START SLAVE")
		proxy := testenv.Proxy(t, primary.Addr)
		s = databaseSite(t, primary, "mysql", primary.DSNAt(proxy.Addr, "root", ""), mysql.Dialect)
		from, to := pool(t, "mysql", primary.DSN("root", "")), pool(t, "mysql", replica.DSN("root", ""))
		stop = func() { // stops replication when the replica has all data
			t.Helper()
			var at string
			var missed int
			if err := from.QueryRowContext(limited(t), "SELECT @@gtid_binlog_pos").Scan(&at); err != nil {
				t.Fatal(err)
			}
			if err := to.QueryRowContext(limited(t), "SELECT MASTER_GTID_WAIT(?, 20)", at).Scan(&missed); err != nil ||
				missed != 0 {
				t.Fatalf("the replica does not follow: %v", err)
			}
			replica.Exec("STOP SLAVE")
		}
		return s, stop, func() time.Time {
			primary.Kill()
			proxy.Lead(replica.Addr)
			return time.Now()
		}
	}
	t.Run("received", func(t *testing.T) {
		t.Parallel()
		s, stop, fail := start(t)
		c := s.newFixture()
		now := time.Now() // the lease shall last for long from the failure on
		until(t, "the holder renews its lease", func() bool { return c.renewals.since(now) > 0 })
		stop()
		failed := fail()
		c.staysTrusted(failed.Add(watchTime))
		c.handOver()
		t.Logf("the holder kept the lock")
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
		c := s.newFixture()
		c.exclusive.Store(false)
		resource := &fencedResource{}
		if !resource.write(c.held.Token()) {
			t.Error("the resource refuses its first holder")
		}
		failed := fail()
		next := c.waitGranted()
		granted := time.Since(failed)
		if !resource.write(next.Token()) || resource.write(c.held.Token()) {
			t.Error("the resource accepts what it should refuse, or refuses what it should accept")
		}
		lostByRenewal(t, c.held, c.renewals, failed)
		t.Logf("granted again after %v, the holder learned of it after %v", granted, time.Since(failed))
		c.release(next)
	})
}
