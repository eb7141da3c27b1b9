package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

const galeraLibrary = "/usr/lib/galera/libgalera_smm.so" // of Debian's galera-4

// galera starts a cluster of n nodes, each with the tables.
func galera(t *testing.T, n int) []*testenv.MariaDBServer {
	t.Helper()
	if _, err := os.Stat(galeraLibrary); err != nil {
		t.Skipf("Galera is not installed (Debian, Ubuntu: apt-get install galera-4): %v", err)
	}
	var nodes []*testenv.MariaDBServer
	first := ""
	for i := range n {
		group, rest := testenv.FreeAddr(t), testenv.FreeAddr(t)
		nodes = append(nodes, testenv.MariaDB(t, "--wsrep-on=ON", "--wsrep-provider="+galeraLibrary,
			"--wsrep-cluster-name=holdfast",
			"--wsrep-cluster-address=gcomm://"+first, fmt.Sprint("--wsrep-node-name=node", i), "--wsrep-sst-method=rsync",
			"--wsrep-sst-receive-address="+testenv.FreeAddr(t), "--binlog-format=ROW",
			"--innodb-autoinc-lock-mode=2", "--wsrep-node-address=127.0.0.1",
			"--wsrep-provider-options=gmcast.listen_addr=tcp://"+group+
				";ist.recv_addr="+rest+";gcache.size=8M"))
		if first == "" {
			first = group
		}
	}
	for _, node := range nodes {
		db := pool(t, node.DSN("root", ""))
		eventually(t, "the node has joined", func() bool {
			return status(t, db, "wsrep_cluster_size") == n && status(t, db, "wsrep_local_state") == 4
		})
	}
	initialise(t, nodes[0].DSN("root", ""))
	return nodes
}

// Clients at both nodes of a Galera cluster want the same few names. A node executes its change
// before the others know it, and learns at the commit whether another was faster. Meanwhile the
// nodes lose each other, so that neither may serve, and reconnect. No two hold at once, and tokens
// grow.
func TestGalera(t *testing.T) {
	t.Parallel()
	nodes := galera(t, 2)
	if by, _ := diagnose(t, pool(t, nodes[0].DSN("root", "")), mysql.Dialect(),
		15*time.Second); by["mysql.replicas"].Severity != driver.Unclear {
		t.Errorf("doctor, of a cluster: %+v", by["mysql.replicas"])
	}
	const names = 3
	each := int64(testenv.Rounds(50, 300)) // each node grants so often before the nodes lose each other, and after
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	var inside [names]atomic.Int64
	var last [names]atomic.Uint64
	var grants [2]atomic.Int64
	var all sync.WaitGroup
	run := func(c *holdfast.Client, node, k int) {
		usual := func(err error) bool {
			return err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrUnavailable) ||
				errors.Is(err, holdfast.ErrUncertain)
		}
		for round := 0; ctx.Err() == nil; round++ {
			n := (k + round) % names
			l, err := c.Mutex(fmt.Sprint("n", n)).Lock(ctx)
			if !usual(err) {
				t.Errorf("node %d: Lock: %v", node, err)
			}
			if err != nil {
				continue
			}
			if inside[n].Add(1) != 1 {
				t.Errorf("node %d: two hold name %d", node, n)
			}
			if was := last[n].Swap(l.Token()); was >= l.Token() {
				t.Errorf("node %d: name %d: token %d after %d", node, n, l.Token(), was)
			}
			grants[node].Add(1)
			inside[n].Add(-1)
			if err := l.Release(); !usual(err) {
				t.Errorf("node %d: Release: %v", node, err)
			}
		}
	}
	for node, server := range nodes {
		for range 2 {
			c := user(t, pool(t, server.DSN("root", "")), time.Minute)
			for k := range 6 {
				all.Go(func() { run(c, node, k) })
			}
		}
	}
	granted := func(what string) {
		t.Helper()
		from := [2]int64{grants[0].Load(), grants[1].Load()}
		eventually(t, "both nodes grant "+what, func() bool {
			return grants[0].Load() > from[0]+each && grants[1].Load() > from[1]+each
		})
	}
	granted("at first")
	nodes[1].Pause()
	other := pool(t, nodes[0].DSN("root", ""))
	eventually(t, "the other node is alone", func() bool { return status(t, other, "wsrep_cluster_size") == 1 })
	nodes[1].Continue()
	granted("after they reconnected")
	stop()
	all.Wait()
}
