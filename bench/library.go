package main

import (
	"context"
	"time"
)

// A library is a lock library in one configuration.
type library struct {
	name string
	// waits: lock waits for a holder. The raw commands do not, and run uncontended only.
	waits bool
	// sticky: the client keeps an idle grant. An uncontended pair then costs no command.
	sticky bool
	open   func(context.Context, site) (client, error)
}

// site is where and how a client is opened.
type site struct {
	addr  string
	addrs []string      // of a quorum
	wire  *wire         // nil for ZooKeeper, which counts by itself
	ttl   time.Duration // of the leases; 0: the library's default
	root  string        // ZooKeeper: the node above this measurement's names
	fair  bool          // each waiter queues at the store
}

// client is one instance of a library with connections of its own.
type client interface {
	// contender returns one that uses name. The contenders of one client may be used concurrently,
	// each by one goroutine.
	contender(name string) contender
	// hold takes name and keeps its lease alive until close, in the library's way.
	hold(ctx context.Context, name string) error
	close() error
}

// contender locks and unlocks one name. lock waits, and returns errGaveUp if the library's own
// limit passes.
type contender interface {
	lock(ctx context.Context) error
	unlock() error
}

// libraries lists the Redis libraries in the order of the tables.
func libraries() []library {
	return []library{
		rawRueidis, rawGoredis,
		redsyncDefault, redsync1ms, redsyncRueidis,
		redislockLinear, redislock1ms, redislockExp,
		rueidislockDefault, rueidislockNoCSC,
		holdfastRueidis, holdfastGoredis, holdfastSticky,
	}
}

// each makes a subject of each library for which keep is true.
func each(keep func(library) bool, run func(context.Context, *testbed, library) (metrics, error)) []subject {
	var out []subject
	for _, l := range libraries() {
		if keep == nil || keep(l) {
			out = append(out, subject{l.name, func(ctx context.Context, b *testbed) (metrics, error) { return run(ctx, b, l) }})
		}
	}
	return out
}
