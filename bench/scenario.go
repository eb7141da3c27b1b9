package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

// A scenario is one table: some subjects under the same load.
type scenario struct {
	name     string // "one/128"
	title    string // one line above the table
	store    string // redis, quorum, sqlite, zookeeper, mysql, postgres or any
	servers  int    // zookeeper: how many
	sql      *sqlKind
	columns  []column
	subjects []subject
	fair     bool // each waiter queues at the store, also those of one client
}

// A subject is one library, in one configuration, under the load of a scenario.
type subject struct {
	name string
	run  func(context.Context, *testbed) (metrics, error)
}

// metrics are the figures of one measurement, by the keys of the columns.
type metrics map[string]float64

// testbed has the servers and settings of measurements.
type testbed struct {
	server   *server       // nil when Redis is not measured
	quorum   quorumServers // of quorum/, while those are measured
	sql      *sqlServer    // of mysql/ or postgres/, while those are measured
	zk       *ensemble     // of zk1/ or zk3/, while those are measured
	root     string        // ZooKeeper: the node above the names of this measurement
	java     javaProgram
	warm     time.Duration // how long a Java process runs before its measurement
	dir      string        // for files; removed at the end
	duration time.Duration
	held     time.Duration
	rounds   int
	fair     bool // of the present scenario
}

// scenarios lists all measurements, in the order of the output.
func scenarios() []scenario {
	return slices.Concat(pingScenarios(), pairScenarios(), namesScenarios(), oneScenarios(), quorumScenarios(),
		heldScenarios(), idleScenarios(), sqliteScenarios(), zooKeeperScenarios(), sqlScenarios(mariaDB),
		sqlScenarios(postgreSQL), scaleScenarios(), sharingScenarios(), cliScenarios(),
		maxHoldScenarios())
}

// site is where client i of a measurement is opened.
func (b *testbed) site(i int, w *wire) site {
	switch {
	case b.zk != nil:
		return site{addr: b.zk.addrs[i%len(b.zk.addrs)], ttl: b.zk.session(), root: b.root, fair: b.fair}
	case b.sql != nil:
		return site{addr: b.sql.addr, wire: w, fair: b.fair}
	case b.quorum != nil:
		return site{addrs: b.quorum.addrs(), wire: w, fair: b.fair}
	}
	return site{addr: b.server.addr, wire: w, fair: b.fair}
}

// measure runs all subjects of sc, interleaved. Each round runs each once, in an order that rotates
// by one from round to round. So a disturbance affects all alike.
func measure(ctx context.Context, b *testbed, sc scenario, libs *regexp.Regexp) (*result, error) {
	subjects := slices.DeleteFunc(slices.Clone(sc.subjects), func(s subject) bool { return !libs.MatchString(s.name) })
	res := &result{Scenario: sc.name, Title: sc.title, columns: sc.columns}
	b.fair = sc.fair
	for _, s := range subjects {
		res.Rows = append(res.Rows, &row{Library: s.name})
	}
	for round := range b.rounds {
		for i := range subjects {
			k := (i + round) % len(subjects)
			fmt.Fprintf(os.Stderr, "%s, round %d of %d: %s\n", sc.name, round+1, b.rounds, subjects[k].name)
			m, err := guard(ctx, b, subjects[k])
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "  failed: %v\n", err)
				res.Rows[k].Errors = append(res.Rows[k].Errors, err.Error())
				continue
			}
			res.Rows[k].Rounds = append(res.Rows[k].Rounds, m)
		}
	}
	res.summarize()
	return res, nil
}

var errHung = errors.New("hung: no result long after its time; its goroutines remain")

// guard bounds one measurement, for libraries that can hang.
func guard(ctx context.Context, b *testbed, s subject) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, b.duration+b.held+b.warm+60*time.Second)
	defer cancel()
	if b.server != nil {
		if err := b.server.flush(ctx); err != nil {
			return nil, err
		}
	}
	for _, s := range b.quorum {
		if err := s.flush(ctx); err != nil {
			return nil, err
		}
	}
	type outcome struct {
		m   metrics
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		m, err := s.run(ctx, b)
		done <- outcome{m, err}
	}()
	select {
	case o := <-done:
		return o.m, o.err
	case <-ctx.Done():
		select { // a measurement that ends with its context is not hung
		case o := <-done:
			return o.m, o.err
		case <-time.After(5 * time.Second):
			return nil, errHung
		}
	}
}
