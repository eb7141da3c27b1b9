package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// Locks of a majority of independent servers.

var redlockRows = []Row{
	{
		ID: "redlock-restart", Title: "Redlock, a server restarts at once", job: gift, Class: "S1", Servers: 5,
		Acquire: "SET R O NX PX T at each of 5 servers; own it with 3 or more",
		Release: "script at each: if GET R = O, DEL R",
		Habit:   "Redlock on servers without persistence, under a supervisor that restarts them",
		Why:     "A holds servers 1, 2 and 3. Server 3 crashes and restarts at once, empty. B gets servers 3, 4 and 5: two majorities.",
		How:     "on the same five servers (redis+quorum://): a restarted server has no vote until every lease that it may have forgotten has expired",
		unsound: redlockRestart, sound: restartSound,
	},
	{
		ID: "redlock-clock", Title: "Redlock, the clocks of a majority jump", job: stock, Class: "S1", Servers: 5,
		Acquire: "SET R O NX PX T at each of 5 servers; own it with 3 or more",
		Release: "script at each: if GET R = O, DEL R",
		Habit:   "Redlock on machines whose clocks are set, by an operator or after a pause of a virtual machine",
		Why:     "The clocks of servers 1, 2 and 3 are set forward by a minute. They end A's lease, and B gets a majority.",
		How:     "on one server that ends the lease early: A learns it at its next renewal, and the resource refuses its token",
		unsound: redlockClock, sound: earlyEnd,
	},
}

// five is five independent servers.
type five struct {
	*scenario
	servers []*Server
}

func (p *scenario) five() *five {
	q := &five{scenario: p}
	for range 5 {
		q.servers = append(q.servers, p.own())
	}
	p.use(q.servers[0])
	p.show("five independent servers: 1 to 5")
	return q
}

func (q *five) urls(from, to int) (all []string) {
	for _, s := range q.servers[from-1 : to] {
		all = append(all, s.URL())
	}
	return all
}

// redlockClient is a client of Redlock: a connection to each server.
type redlockClient struct {
	*client
	links []*link
}

func (q *five) client(name string, unreachable ...int) *redlockClient {
	m := &redlockClient{client: &client{scenario: q.scenario, name: name}}
	for range q.servers {
		m.links = append(m.links, nil)
	}
	for i, s := range q.servers {
		m.links[i] = q.connect(s.URL())
	}
	for _, n := range unreachable {
		m.links[n-1].set(failing)
	}
	m.conn = m.links[0]
	return m
}

// take is the acquire of Redlock.
func (m *redlockClient) take(key string) bool {
	m.begins(lease)
	before := time.Duration(m.rec.now())
	answers, yes := []string(nil), 0
	for i, l := range m.links {
		v, err := l.ask(m.ctx, "SET", key, m.name, "NX", "PX", leaseMillis)
		switch {
		case err != nil:
			answers = append(answers, fmt.Sprintf("%d: unreachable", i+1))
		case got(v):
			yes++
			fallthrough
		default:
			answers = append(answers, fmt.Sprintf("%d: %s", i+1, render(v)))
		}
	}
	m.rec.add(Event{Lane: m.name, Kind: Does, Text: m.plain("SET " + key + " " + m.name + " NX PX " + leaseMillis),
		Answer: strings.Join(answers, ", ")})
	// The allowance for clock drift.
	left := lease - (time.Duration(m.rec.now()) - before) - lease/100
	if yes < len(m.links)/2+1 || left <= 0 {
		m.fails("no majority")
		return false
	}
	m.holds("%d of %d is a majority: holds the lock for %v", yes, len(m.links), left.Round(100*time.Millisecond))
	return true
}

// free is the release of Redlock.
func (m *redlockClient) free(key string) {
	m.release()
	for _, l := range m.links {
		// An unreachable server has nothing to release.
		_, _ = l.Run(m.ctx, compareAndDelete, []string{key}, []string{m.name})
	}
	m.rec.add(Event{Lane: m.name, Kind: Does, Text: "at each: if GET R = " + m.name + ", DEL R"})
}

func (m *redlockClient) hold(key string) func() {
	return func() {
		if !m.take(key) {
			m.failf("%s got no majority", m.name)
		}
		used, _ := m.reads(m.name, 0)
		m.at("at work")
		m.writes(m.name, used, 0)
		m.free(key)
	}
}

func redlockRestart(p *scenario) {
	key := p.key("R")
	q := p.five()
	a := q.client("A", 4, 5)
	a.begin("at work", a.hold(key))
	q.forget(q.servers[2].URL())
	q.servers[2].Kill()
	p.fault(Stage, "server3", "kill", "server 3 crashes")
	p.must(q.servers[2].Restart(p.ctx))
	p.rec.add(Event{Lane: Stage, Kind: Fault, Text: "server 3 restarts at once, without its data"},
		history.Event{Kind: history.Leader, Target: "server3"})
	b := q.client("B", 1, 2)
	b.begin("at work", b.hold(key))
	a.to("")
	b.to("")
}

func redlockClock(p *scenario) {
	key := p.key("R")
	q := p.five()
	a, b := q.client("A"), q.client("B")
	a.begin("at work", a.hold(key))
	p.shorten(time.Minute, q.urls(1, 3)...)
	p.fault(Stage, "server1", "clock",
		"the clocks of servers 1, 2 and 3 are set forward by a minute. (The lab cannot set the clocks. It shortens the leases by a minute instead, which has the same effect on the clients.)")
	b.begin("at work", b.hold(key))
	a.to("")
	b.to("")
}

// user returns a client of holdfast on a quorum of the five, some of which it cannot reach.
func (q *five) user(name string, unreachable ...int) *user {
	var servers []quorum.Server
	for i, s := range q.servers {
		dial := func(context.Context) (redislock.Conn, error) { return dial(s.URL()) }
		if slices.Contains(unreachable, i+1) {
			dial = func(context.Context) (redislock.Conn, error) {
				return nil, fmt.Errorf("%w: unreachable", driver.ErrUnavailable)
			}
		}
		servers = append(servers, quorum.Server{Name: fmt.Sprint("server ", i+1), Dial: dial})
	}
	b := quorum.New(servers, &quorum.Config{Prefix: q.prefix})
	q.cleanup = append(q.cleanup, func() { _ = b.Close() })
	if len(unreachable) == 0 {
		q.must(b.Declare(q.ctx)) // fails if another client has declared them
	}
	return q.userOn(name, holdfast.DefaultTTL, b, nil) // server 3 has no vote for A's renewals
}

// restartSound: the same servers fail in the same way under a quorum of holdfast.
func restartSound(p *scenario) {
	q := p.five()
	c := q.user("C") // declares that the five are new
	a := q.user("A", 4, 5)
	g := a.locksFree()
	used, _ := p.reads("A", g.Token())
	q.forget(q.servers[2].URL())
	q.servers[2].Kill()
	p.fault(Stage, "server3", "kill", "server 3 crashes")
	p.must(q.servers[2].Restart(p.ctx))
	p.rec.add(Event{Lane: Stage, Kind: Fault, Text: "server 3 restarts at once, without its data"},
		history.Event{Kind: history.Leader, Target: "server3"})
	b := q.user("B", 1, 2)
	p.want(b.tries() == nil, "B got the lock that A holds")
	p.show("servers 4 and 5 would grant it, but server 3 has no vote: it may have forgotten a grant")
	p.writes("A", used, g.Token())
	g.ends()
	h := c.tries()
	p.want(h != nil, "C, which reaches all five servers, did not get a free lock")
	p.want(h.Token() > g.Token(), "C's token %d is not larger than A's %d", h.Token(), g.Token())
	h.watch()
	h.finishes()
}
