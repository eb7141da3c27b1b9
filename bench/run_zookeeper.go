package main

import (
	"context"
	"fmt"
)

// lineClients is how many clients the waiters of zk1/line and of the SQL line scenarios share.
const lineClients = 4

func zooKeeperScenarios() []scenario {
	var out []scenario
	for _, servers := range []int{1, 3} {
		where := map[int]string{1: "one server", 3: "an ensemble of three"}[servers]
		out = append(out, scenario{
			name: fmt.Sprintf("zk%d/pair", servers), store: "zookeeper", servers: servers,
			title: fmt.Sprintf(
				"ZooKeeper, %s: uncontended lock and unlock of one name, one client; the last three columns are per pair.", where),
			columns: []column{
				dur("p50", "p50"), dur("p99", "p99"), num("persec", "pairs/s"),
				num("calls", "requests"), dur("cpu", "client CPU"), dur("srvcpu", "server CPU"),
			},
			subjects: zooKeeperSubjects(runPair, func(ctx context.Context, b *testbed) (metrics, error) {
				return runCurator(ctx, b, 1, 1)
			}),
		})
		for _, n := range []int{2, 16, 128} {
			out = append(out, scenario{
				name: fmt.Sprintf("zk%d/one/%d", servers, n), store: "zookeeper", servers: servers,
				title: fmt.Sprintf("ZooKeeper, %s: one name, empty critical section, %d clients with sessions of their own.", where,
					n),
				columns: []column{
					num("persec", "acquisitions/s"), dur("p50", "hand-over p50"), dur("p99", "p99"), num("calls", "requests"),
					dur("waitp99", "wait p99"), dur("waitmax", "longest wait"), ratio("jain", "Jain"), pct("self", "same again"),
					dur("cpu", "client CPU"), dur("srvcpu", "server CPU"), num("violations", "violations"),
				},
				subjects: zooKeeperSubjects(func(ctx context.Context, b *testbed, l library) (metrics, error) {
					return runOne(ctx, b, l, n, n, 0)
				}, func(ctx context.Context, b *testbed) (metrics, error) {
					return runCurator(ctx, b, n, n)
				}),
			})
		}
		if servers == 1 {
			out = append(out, lineScenarios()...)
		}
	}
	return out
}

func lineScenarios() []scenario {
	var out []scenario
	for _, n := range []int{10, 100, 1000} {
		out = append(out, scenario{
			name: fmt.Sprintf("zk1/line/%d", n), store: "zookeeper", servers: 1,
			title: fmt.Sprintf("ZooKeeper, one server: the cost of an acquisition while %d others, of %d clients, wait.", n,
				lineClients),
			columns: []column{
				num("calls", "requests"), num("bytesread", "bytes of answers"), dur("srvcpu", "server CPU"),
				dur("cpu", "client CPU"),
				dur("p50", "hand-over p50"), dur("p99", "p99"), num("persec", "acquisitions/s"), num("violations", "violations"),
			},
			subjects: zooKeeperSubjects(func(ctx context.Context, b *testbed, l library) (metrics, error) {
				return runOne(ctx, b, l, lineClients, n+1, 0)
			}, func(ctx context.Context, b *testbed) (metrics, error) {
				return runCurator(ctx, b, lineClients, n+1)
			}),
		})
	}
	return out
}

// zooKeeperSubjects makes a subject of each library, on nodes of its own.
func zooKeeperSubjects(run func(context.Context, *testbed, library) (metrics, error),
	curator func(context.Context, *testbed) (metrics, error)) []subject {
	out := []subject{{curatorName, onOwnNodes(curator)}}
	for _, l := range zooKeeperLibraries() {
		out = append(out,
			subject{l.name, onOwnNodes(func(ctx context.Context, b *testbed) (metrics, error) { return run(ctx, b, l) })})
	}
	return out
}

// onOwnNodes gives each measurement nodes of its own, so that none sees the nodes of another.
func onOwnNodes(run func(context.Context, *testbed) (metrics, error)) func(context.Context, *testbed) (metrics, error) {
	return func(ctx context.Context, b *testbed) (metrics, error) {
		b.zk.run++
		return run(ctx, &testbed{
			zk: b.zk, root: fmt.Sprintf("/run-%d", b.zk.run), java: b.java, dir: b.dir, duration: b.duration, warm: b.warm,
			fair: b.fair,
		})
	}
}

// prepare runs the servers that sc needs, those of ZooKeeper warmed up, and stops all others, which
// would use CPU.
func (b *testbed) prepare(ctx context.Context, sc scenario) (err error) {
	if sc.store != "quorum" {
		b.noQuorum()
	} else if b.quorum == nil {
		if b.quorum, err = startQuorum(ctx); err != nil {
			return err
		}
	}
	if b.sql != nil && b.sql.sqlKind != sc.sql {
		b.noSQL()
	}
	if b.sql == nil && sc.sql != nil {
		if b.sql, err = startSQL(ctx, sc.sql); err != nil {
			return err
		}
	}
	if b.zk != nil && len(b.zk.servers) != sc.servers {
		b.noZooKeeper()
	}
	if b.zk != nil || sc.servers == 0 {
		return nil
	}
	zk, err := startEnsemble(ctx, b.dir, sc.servers)
	if err != nil {
		return err
	}
	b.zk = zk
	if b.warm == 0 {
		return nil
	}
	warm := *b
	warm.duration = b.warm
	_, err = onOwnNodes(func(ctx context.Context, b *testbed) (metrics, error) {
		return runOne(ctx, b, goZooKeeper, 16, 16, 0)
	})(ctx, &warm)
	return err
}

func (b *testbed) noZooKeeper() {
	if b.zk != nil {
		b.zk.stop()
		b.zk = nil
	}
}

func (b *testbed) noSQL() {
	if b.sql != nil {
		b.sql.stop()
		b.sql = nil
	}
}
