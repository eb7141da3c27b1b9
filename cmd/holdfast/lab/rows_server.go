package lab

import (
	"bufio"
	"net"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/relay"
)

// Locks that a failover loses.

var serverRows = []Row{
	{
		ID: "single-node-failover", Title: "any lock on a primary with a replica", job: stock, Class: "S1", Servers: 2,
		Acquire: "SET R O NX PX T", Release: "script: if GET R = O, DEL R",
		Habit:   "a managed Redis \"with automatic failover\"",
		Why:     "The primary answers OK to A, and crashes before its replica has received the key. The replica is promoted, and grants the lock to B.",
		How:     "with replicas=1 a grant counts only once the replica has confirmed it. Without, A's context is cancelled, and the resource refuses A",
		unsound: failover, sound: failoverSound, except: []history.Class{history.S1},
	},
	{
		ID: "wait-pooled", Title: "WAIT on another connection of the pool", job: points, Class: "S1", Servers: 2,
		Acquire: "SET R O NX PX T, then WAIT 1 100, each on whatever connection the pool has",
		Release: "script: if GET R = O, DEL R",
		Habit:   "client.Set(…), client.Wait(…) of a pooled client",
		Why:     "WAIT is about the writes of its own connection, and there are none: it answers 1 at once, while the replica does not have the key. After a failover B gets the lock.",
		How:     "script and WAIT use the same connection: the grant is not confirmed, and the library cancels it before any client relies on it",
		unsound: waitPooled, sound: waitSound,
	},
}

// pair is a primary and its replica.
type pair struct {
	*scenario
	primary, replica *Server
	replication      *relay.Relay // the replica follows through it
}

// pair starts both, and returns when the replica has confirmed everything.
func (p *scenario) pair() *pair {
	r := &pair{scenario: p, primary: p.own()}
	var err error
	r.replication, err = relay.New(func(net.Conn, *bufio.Reader) (relay.Ends, error) {
		return relay.Ends{Server: r.primary.addr}, nil
	})
	p.must(err)
	p.cleanup = append(p.cleanup, r.replication.Close)
	// WAIT counts replicas that have confirmed what the primary had sent at the last command of the
	// connection. A PING to replicas just before the link is cut would be part of that.
	p.server(r.primary.URL(), "CONFIG", "SET", "repl-ping-replica-period", "3600")
	r.replica = p.own(r.primary.Follow(r.replication.Addr)...)
	p.use(r.primary)
	p.until("the replica has confirmed everything", func() bool {
		info := p.server(r.primary.URL(), "INFO", "replication").Text
		_, sent, _ := strings.Cut(info, "master_repl_offset:")
		sent, _, _ = strings.Cut(sent, "\r\n")
		return strings.Contains(p.server(r.replica.URL(), "INFO", "replication").Text, "master_link_status:up") &&
			strings.Contains(info, "state=online,offset="+sent+",")
	})
	p.rec.add(Event{Lane: Stage, Kind: Shows, Text: "a primary and a replica, in sync"},
		history.Event{Kind: history.Leader, Target: "primary"})
	return r
}

// until waits for a state of the servers.
func (p *scenario) until(what string, ok func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startLimit); !ok(); {
		if time.Now().After(end) {
			p.failf("this never became true: %s", what)
		}
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			p.must(p.ctx.Err())
		}
	}
}

// cutOff cuts the link between the two.
func (r *pair) cutOff() {
	r.replication.Begin(relay.Impairment{Mode: relay.Hold}) // withheld bytes never arrive
	r.fault(Stage, "replica", "cut",
		"the link between the primary and its replica breaks: from here on the replica receives nothing")
}

// failOver kills the primary and promotes the replica.
func (r *pair) failOver() {
	r.forget(r.primary.URL())
	r.primary.Kill()
	r.fault(Stage, "primary", "kill", "the primary crashes")
	r.server(r.replica.URL(), "REPLICAOF", "NO", "ONE")
	r.use(r.replica)
	r.rec.add(
		Event{Lane: Stage, Kind: Fault, Text: "the replica is promoted, as a sentinel would do it: REPLICAOF NO ONE"},
		history.Event{Kind: history.Leader, Target: "replica"})
}

func failover(p *scenario) {
	key := p.key("R")
	r := p.pair()
	a := p.client("A")
	r.cutOff()
	a.begin("at work", a.work(key, func() { a.set(key, "A") }))
	r.failOver()
	p.look(key)
	b := p.client("B")
	b.begin("at work", b.work(key, func() { b.set(key, "B") }))
	a.to("")
	b.to("")
}

// work takes a lock, reads, stops, writes, and ends without a release: its server has crashed.
func (c *client) work(key string, take func()) func() {
	return func() {
		take()
		used, _ := c.reads(c.name, 0)
		c.at("at work")
		c.writes(c.name, used, 0)
		c.release()
	}
}

func waitPooled(p *scenario) {
	key := p.key("R")
	r := p.pair()
	a := p.client("A")
	second := p.connect(r.primary.URL()) // of A's pool
	r.cutOff()
	a.begin("at work", a.work(key, func() {
		a.begins(lease)
		a.do("SET", key, "A", "NX", "PX", leaseMillis)
		v, err := second.ask(p.ctx, "WAIT", "1", "100")
		p.must(err)
		p.rec.add(Event{Lane: "A", Kind: Does, Text: "on another connection of its pool: WAIT 1 100", Answer: render(v)})
		if v.Int < 1 {
			a.failf("WAIT on a connection without writes answers %d", v.Int)
		}
		a.holds("a replica has the key: holds the lock, safe from failovers")
	}))
	v, err := a.conn.ask(p.ctx, "WAIT", "1", "100")
	p.must(err)
	p.show("on the connection that has sent the SET, the answer is: WAIT 1 100 → %s", render(v))
	r.failOver()
	p.look(key)
	b := p.client("B")
	b.begin("at work", b.work(key, func() { b.set(key, "B") }))
	a.to("")
	b.to("")
}
