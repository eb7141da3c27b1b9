package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// quorumSize is the number of servers of the quorum.
const quorumSize = 5

// quorumTargets are the targets for -check.
func quorumTargets() []target {
	const one, work = "quorum/one/32", "quorum/rest/32"
	return []target{
		{text: "quorum: pair p50, against 0.6 of redsync's", value: of("quorum/pair", oursQuorum, "p50"),
			limit: times(0.6, of("quorum/pair", "redsync", "p50")), show: showDuration},
		{text: "quorum: pair: commands per server", value: of("quorum/pair", oursQuorum, "sentper"), limit: number(3)},
		{text: "quorum: 32 clients: commands per server", value: of(one, oursQuorum, "sentper"), limit: number(3)},
		{text: "quorum: 32 clients, 2 ms of work, 20 ms of rest: hand-over p50, against a tenth of redsync's",
			value: of(work, oursQuorum, "p50"), limit: times(0.1, of(work, "redsync", "p50")), show: showDuration},
		{text: "quorum: 32 clients, 2 ms of work, 20 ms of rest: hand-over p50, against half of redsync's with 1 ms delays",
			value: of(work, oursQuorum, "p50"), limit: times(0.5, of(work, "redsync-1ms", "p50")), show: showDuration},
	}
}

// quorumServers are independent Redis servers.
type quorumServers []*server

func startQuorum(ctx context.Context) (quorumServers, error) {
	var all quorumServers
	for range quorumSize {
		s, err := startServer(ctx)
		if err != nil {
			all.stop()
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (q quorumServers) stop() {
	for _, s := range q {
		s.stop()
	}
}

func (q quorumServers) addrs() (all []string) {
	for _, s := range q {
		all = append(all, s.addr)
	}
	return all
}

// load is the sum of their loads.
func (q quorumServers) load(ctx context.Context) (sum load, err error) {
	for _, s := range q {
		l, lerr := s.load(ctx)
		err = errors.Join(err, lerr)
		sum.commands += l.commands
		sum.scripts += l.scripts
		sum.cpu += l.cpu
	}
	return sum, err
}

func (b *testbed) noQuorum() {
	b.quorum.stop()
	b.quorum = nil
}

func quorumScenarios() []scenario {
	subjects := func(run func(context.Context, *testbed, library) (metrics, error)) (out []subject) {
		for _, l := range quorumLibraries() {
			out = append(out, subject{l.name, func(ctx context.Context, b *testbed) (metrics, error) {
				m, err := run(ctx, b, l)
				if err == nil {
					m["sentper"] = m["sent"] / quorumSize
				}
				return m, err
			}})
		}
		return out
	}
	out := []scenario{{
		name: "quorum/pair", store: "quorum",
		title: fmt.Sprintf(
			"A quorum of %d Redis servers: uncontended lock and unlock of one name, one goroutine; the last columns are per pair.", quorumSize),
		columns: []column{
			dur("p50", "p50"), dur("p99", "p99"), num("persec", "pairs/s"), num("sentper", "commands per server"),
			num("allocs", "allocs"), dur("cpu", "client CPU"), dur("srvcpu", "server CPU"),
		},
		subjects: subjects(runPair),
	}}
	for _, c := range []struct {
		name, work string
		n          int
		hold, rest time.Duration
	}{
		{"quorum/one/2", "empty critical section", 2, 0, 0},
		{"quorum/one/32", "empty critical section", 32, 0, 0},
		{"quorum/work/32", "2 ms of work", 32, 2 * time.Millisecond, 0},
		{"quorum/rest/32", "2 ms of work, then 20 ms before the next request", 32, 2 * time.Millisecond,
			20 * time.Millisecond},
	} {
		out = append(out, scenario{
			name: c.name, store: "quorum",
			title: fmt.Sprintf("A quorum of %d Redis servers: one name, %s, %d clients with connections of their own.",
				quorumSize, c.work, c.n),
			columns: []column{
				num("persec", "acquisitions/s"), dur("p50", "hand-over p50"), dur("p99", "p99"),
				num("sentper", "commands per server"),
				dur("waitp99", "wait p99"), dur("waitmax", "longest wait"), ratio("jain", "Jain"), pct("self", "same again"),
				dur("cpu", "client CPU"), dur("srvcpu", "server CPU"), num("violations", "violations"),
			},
			subjects: subjects(func(ctx context.Context, b *testbed, l library) (metrics, error) {
				return runOneRested(ctx, b, l, c.n, c.n, c.hold, c.rest)
			}),
		})
	}
	return out
}
