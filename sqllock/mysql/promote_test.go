package mysql_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A replica that has confirmed everything takes over, while clients still use the old primary. That
// commits nothing without a replica (AFTER_SYNC, and a timeout longer than any lease), so it
// neither grants nor hands over. Earlier grants remain at the new primary for as long as their
// holders may trust them.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	const ttl = 9 * time.Second
	primary := maria(t, durable, "--log-bin=log", "--server-id=1", "--sync-binlog=1")
	replica := testenv.MariaDB(t, "--server-id=2", "--relay-log=relay", "--log-bin=log",
		"--rpl-semi-sync-slave-enabled=ON")
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica.Exec(
		fmt.Sprintf("CHANGE MASTER TO master_host='%s', master_port=%s, master_user='root', master_use_gtid=slave_pos", host,
			port), "START SLAVE")
	follows(t, primary, replica)
	primary.Exec("SET GLOBAL rpl_semi_sync_master_timeout = 3600000",
		"SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
		"SET GLOBAL rpl_semi_sync_master_enabled = ON")
	admin := pool(t, primary.DSN("root", ""))
	eventually(t, "the replica confirms", func() bool { return status(t, admin, "Rpl_semi_sync_master_clients") == 1 })

	holder, waiter := user(t, pool(t, primary.DSN("root", "")), ttl), user(t, pool(t, primary.DSN("root", "")), ttl)
	held, err := holder.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	waited := make(chan error, 1)
	go func() {
		l, err := waiter.Mutex("x").Lock(ctx)
		if err == nil {
			t.Errorf("the old primary has granted %d", l.Token())
		}
		waited <- err
	}()
	eventually(t, "one waits", func() bool {
		r, err := holder.Inspect(t.Context(), "x")
		return err == nil && r.Waiting == 1
	})
	catchesUp(t, primary, replica)
	replica.Exec("STOP SLAVE", "RESET SLAVE ALL")
	if err := held.Release(); err == nil {
		t.Error("the old primary has committed a release, and no replica has it")
	}
	next, err := user(t, pool(t, replica.DSN("root", "")), ttl).Mutex("x").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() <= held.Token() {
		t.Errorf("the new primary has granted %d after %d", next.Token(), held.Token())
	}
	time.Sleep(ttl) // the waiter keeps asking the old primary
	cancel()
	<-waited
}
