package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sqlKinds are the database servers that can be measured.
var sqlKinds = []*sqlKind{mariaDB, postgreSQL}

func sqlScenarios(k *sqlKind) []scenario {
	out := []scenario{sqlFloor(k), {
		name: k.store + "/pair", store: k.store, sql: k,
		title: k.what +
			": uncontended lock and unlock of one name, one client; the columns from commands to bytes are per pair.",
		columns: []column{
			dur("p50", "p50"), dur("p99", "p99"), num("persec", "pairs/s"), num("sent", "commands"), num("calls", "statements"),
			dur("cpu", "client CPU"), dur("srvcpu", "server CPU"), num("allocs", "allocs"), num("bytes", "bytes"),
			dur("disk", "disk"),
		},
		subjects: sqlSubjects(k, nil, runPair),
	}}
	for _, hold := range []time.Duration{0, work2ms} {
		for _, n := range []int{2, 16, 32} {
			out = append(out, sqlContended(k, "one", n, n, hold))
		}
	}
	out = append(out, sqlContended(k, "shared", lineClients, 32, work2ms), sqlContended(k, "goroutines", 1, 32, work2ms),
		sqlContended(k, "goroutines", 1, 128, 0), sqlContended(k, "beside", 32, 2, work2ms))
	polls := func(l library) bool { return strings.HasSuffix(l.name, "-row") }
	for _, n := range []int{10, 100, 1000} {
		out = append(out, scenario{
			name: fmt.Sprintf("%s/line/%d", k.store, n), store: k.store, sql: k, fair: true,
			title: fmt.Sprintf("%s: the cost of an acquisition while %d others, of %d clients, wait; empty critical section.",
				k.what, n, lineClients),
			columns: []column{
				dur("p50", "hand-over p50"), dur("p99", "p99"), num("persec", "acquisitions/s"), num("sent", "commands"),
				num("calls", "statements"),
				dur("cpu", "client CPU"), dur("srvcpu", "server CPU"), num("conns", "connections"), dur("disk", "disk"),
				num("violations", "violations"),
			},
			subjects: sqlSubjects(k, func(l library) bool { return l.waits && !polls(l) },
				func(ctx context.Context, b *testbed, l library) (metrics, error) {
					return runOne(ctx, b, l, lineClients, n+1, 0)
				}),
		})
	}
	return out
}

// sqlContended is one name with contenders that share the given number of clients. Further clients
// are open without requests.
func sqlContended(k *sqlKind, name string, clients, contenders int, hold time.Duration) scenario {
	sc := scenario{
		name: fmt.Sprintf("%s/%s/%d", k.store, name, contenders), store: k.store, sql: k,
		title: fmt.Sprintf("%s: one name, empty critical section, %d contenders of %d clients with pools of their own.",
			k.what, contenders, clients),
		columns: []column{
			dur("p50", "hand-over p50"), dur("p99", "p99"), num("persec", "acquisitions/s"), num("sent", "commands"),
			num("calls", "statements"),
			dur("waitmax", "longest wait"), ratio("jain", "Jain"), pct("self", "same again"),
			dur("cpu", "client CPU"), dur("srvcpu", "server CPU"), dur("disk", "disk"), num("violations", "violations"),
		},
		subjects: sqlSubjects(k, func(l library) bool { return l.waits },
			func(ctx context.Context, b *testbed, l library) (metrics, error) {
				return runOne(ctx, b, l, clients, contenders, hold)
			}),
	}
	if hold > 0 {
		sc.name += "-work"
		sc.title = strings.Replace(sc.title, "empty critical section", fmt.Sprintf("held for %v", hold), 1)
	}
	if clients == contenders {
		sc.columns = slices.Insert(sc.columns, 8, num("overtaken", "out of order"))
	}
	return sc
}

// sqlSubjects makes a subject of each library for which keep is true, on tables of its own. It also
// measures the disk, because durable commits wait for it and its speed changes from minute to
// minute.
func sqlSubjects(k *sqlKind, keep func(library) bool,
	run func(context.Context, *testbed, library) (metrics, error)) []subject {
	var out []subject
	for _, l := range sqlLibraries(k) {
		if keep != nil && !keep(l) {
			continue
		}
		out = append(out, subject{l.name, func(ctx context.Context, b *testbed) (metrics, error) {
			if err := b.sql.clear(ctx); err != nil {
				return nil, err
			}
			const samples, limit = 100, time.Second
			disk, err := b.sql.disk(samples, limit, 0)
			if err != nil {
				return nil, err
			}
			if _, err := b.sql.load(ctx); err != nil { // so that the next ones take equally long
				return nil, err
			}
			m, err := run(ctx, &testbed{sql: b.sql, dir: b.dir, duration: b.duration, fair: b.fair}, l)
			if err == nil {
				m["disk"] = float64(disk.Quantile(0.5))
			}
			return m, err
		}})
	}
	return out
}

// sqlFloor is the lower bound: a statement that reads nothing, one that changes a row, and a synced
// write on the disk. Without a pause, and with the pauses of the scenarios with work.
func sqlFloor(k *sqlKind) scenario {
	sc := scenario{
		name: k.store + "/floor", store: k.store, sql: k,
		title: fmt.Sprintf(
			"%s, one connection: SELECT 1, UPDATE of one row, and one block of a file written and synced on the server's disk; "+
				"one after the other, and each after a pause of %v.", k.what, work2ms),
		columns: []column{dur("p50", "p50"), dur("p99", "p99"), num("persec", "per s")},
	}
	for _, idle := range []time.Duration{0, work2ms} {
		suffix := ""
		if idle > 0 {
			suffix = "-after-pause"
		}
		statement := func(text string) func(context.Context, *testbed) (metrics, error) {
			return func(ctx context.Context, b *testbed) (metrics, error) { return runStatement(ctx, b, text, idle) }
		}
		sc.subjects = append(sc.subjects, subject{"select" + suffix, statement("SELECT 1")},
			subject{"update" + suffix, statement("UPDATE " + naiveTable + " SET expires = expires + INTERVAL '1' SECOND")},
			subject{"disk" + suffix, func(_ context.Context, b *testbed) (metrics, error) {
				h, err := b.sql.disk(1<<30, b.duration, idle)
				if err != nil {
					return nil, err
				}
				m := metrics{"persec": float64(h.N) / b.duration.Seconds()}
				m.p50p99("", h)
				return m, nil
			}})
	}
	return sc
}

// runStatement measures a prepared statement. The table that it may change has one row.
func runStatement(ctx context.Context, b *testbed, text string, idle time.Duration) (metrics, error) {
	if err := b.sql.clear(ctx); err != nil {
		return nil, err
	}
	if err := b.sql.exec(ctx, "INSERT INTO "+naiveTable+" VALUES ('one', '1', '2000-01-01')"); err != nil {
		return nil, err
	}
	db := b.sql.pool(b.sql.addr, new(wire), true)
	defer db.Close()
	stmt, err := db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer stmt.Close()
	return ping(b, idle, func() error {
		_, err := stmt.ExecContext(ctx)
		return err
	})
}
