package mutant

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// zookeeper are bugs of the store on ZooKeeper.
var zookeeper = []Mutant{
	{
		ID: "zookeeper-line-by-text", Store: ZooKeeper, Class: in(history.S1),
		Bug: "contenders are ordered by the text of their nodes' names, not by their numbers",
		Edits: []Edit{{"zklock/node.go", `		if a.seq != b.seq {
			return cmp.Compare(a.seq, b.seq)
		}
		return strings`, `		return strings`}},
		Run: Run{Faults: "kill"},
	},
	{
		ID: "zookeeper-watch-lowest", Store: ZooKeeper, Class: in(history.S1),
		Bug: "all waiters watch the first in the queue in place of the one before them, and take its message as a grant of their own",
		Edits: []Edit{{"zklock/acquire.go", `target, head := blockers[len(blockers)-1], in.head()`,
			`target, head := blockers[0], in.head()`}},
		Run: Run{Faults: "kill"},
	},
	{
		ID: "zookeeper-gone-is-mine", Store: ZooKeeper, Class: in(history.S1),
		Bug: "when the node in front disappears the lock counts as free, even if that node was only a waiter's",
		Edits: []Edit{{"zklock/wake.go", `		if ev.Type != zk.EventDataChanged {
			return false
		}
`, `		if ev.Type == zk.EventSessionLost {
			return false
		}
`}},
		Run: Run{Faults: "kill"},
	},
	{
		ID: "zookeeper-writer-beside-readers", Store: ZooKeeper, Class: in(history.S5),
		Bug: "readers in front block no request",
		Edits: []Edit{{"zklock/node.go", `	if r == exclusive {
		return front
	}
`, ``}},
		Run: Run{Faults: "kill"},
	},
	{
		ID: "zookeeper-permits-uncounted", Store: ZooKeeper, Class: in(history.S5),
		Bug: "any number of permits is granted as long as one is free",
		Edits: []Edit{{"zklock/permits.go", `	if sem.leases.permits()+e.req.N <= limit {`,
			`	if sem.leases.permits() < limit {`}},
		Run: Run{For: 16 * time.Second, Faults: "delay", Names: 1, Loops: 12},
	},
	{
		ID: "zookeeper-token-is-rounded", Store: ZooKeeper, Class: in(history.S4),
		Bug: "the token is the number of the contender's transaction without its last digit, so that several grants share it",
		Edits: []Edit{
			{"zklock/acquire.go", `	e.setState(waiting, uint64(stat.Czxid), me)`,
				`	e.setState(waiting, uint64(stat.Czxid)/10*10, me)`},
			{"zklock/entry.go", `	token := uint64(stat.Czxid)`, `	token := uint64(stat.Czxid)/10*10`},
		},
		Run: Run{Faults: "kill"},
	},
	{
		ID: "zookeeper-deaf", Store: ZooKeeper, Class: in(history.L1, history.L2),
		Bug: "waiters do not watch the node in front, and learn of its end in no other way",
		Edits: []Edit{
			{"zklock/acquire.go", `zk.Handler{Soon: e.onHandOver(), Func: e.onEvent()}`, `zk.Handler{Func: func(zk.Event) {}}`},
			{"zklock/renew.go", `	left, err := e.recheck(ctx)
	if left > 0 {
		ch.Retry = left
	}
	return s.outcome(e, ch), err`, `	return ch, nil`},
			{"zklock/acquire.go", `			reply.Retry = s.ttl
`, `			reply.Retry = 10 * s.ttl
`},
		},
		Run: Run{Faults: "delay"},
	},
}
