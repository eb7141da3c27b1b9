package lab

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/history"
)

// Locks of a majority of independent servers.

var redlockRows = []Row{
	{
		ID: "redlock-restart", Title: "Redlock, a server restarts at once", job: gift, Class: "S1", Servers: 5,
		Acquire: "SET R O NX PX T at each of 5 servers; own it with 3 or more", Release: "script at each: if GET R = O, DEL R",
		Habit:   "Redlock on servers that keep nothing on disk, under a supervisor that restarts them",
		Why:     "A holds servers 1, 2 and 3. Server 3 crashes and is back at once, empty. B gets 3, 4 and 5: two majorities.",
		How:     "on one server, restarted the same way: A is told at its next renewal, and the resource refuses its token",
		unsound: redlockRestart, sound: restartSound, except: []history.Class{history.S1},
	},
	{
		ID: "redlock-clock", Title: "Redlock, the clocks of a majority jump", job: stock, Class: "S1", Servers: 5,
		Acquire: "SET R O NX PX T at each of 5 servers; own it with 3 or more", Release: "script at each: if GET R = O, DEL R",
		Habit:   "Redlock on machines whose clocks are stepped, by an operator or after a pause of a virtual machine",
		Why:     "The clocks of servers 1, 2 and 3 are set forward by a minute. They end A's lease, and B gets a majority.",
		How:     "on one server that ends the lease early: A is told at its next renewal, and the resource refuses its token",
		unsound: redlockClock, sound: earlyEnd,
	},
}

// quorum is five servers.
type quorum struct {
	*play
	servers []*Server
}

func (p *play) quorum() *quorum {
	q := &quorum{play: p}
	for range 5 {
		q.servers = append(q.servers, p.own())
	}
	p.use(q.servers[0])
	p.show("five servers that know nothing of each other: 1 to 5")
	return q
}

func (q *quorum) urls(from, to int) (all []string) {
	for _, s := range q.servers[from-1 : to] {
		all = append(all, s.URL())
	}
	return all
}

// member is a client of Redlock: a connection to each server.
type member struct {
	*client
	links []*link
}

func (q *quorum) client(name string, unreachable ...int) *member {
	m := &member{client: &client{play: q.play, name: name}}
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
func (m *member) take(key string) bool {
	m.asks(lease)
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
	m.rec.add(Event{Lane: m.name, Kind: Does, Text: m.plain("SET " + key + " " + m.name + " NX PX " + leaseMillis), Answer: strings.Join(answers, ", ")})
	left := lease - (time.Duration(m.rec.now()) - before) - lease/100 // the allowance for drifting clocks
	if yes < len(m.links)/2+1 || left <= 0 {
		m.fails("no majority")
		return false
	}
	m.holds("%d of %d is a majority: holds the lock for %v", yes, len(m.links), left.Round(100*time.Millisecond))
	return true
}

// free is the release of Redlock.
func (m *member) free(key string) {
	m.release()
	for _, l := range m.links {
		_, _ = l.Run(m.ctx, compareAndDelete, []string{key}, []string{m.name}) // a server that is away has nothing to free
	}
	m.rec.add(Event{Lane: m.name, Kind: Does, Text: "at each: if GET R = " + m.name + ", DEL R"})
}

func (m *member) hold(key string) func() {
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

func redlockRestart(p *play) {
	key := p.key("R")
	q := p.quorum()
	a := q.client("A", 4, 5)
	a.begin("at work", a.hold(key))
	q.forget(q.servers[2].URL())
	q.servers[2].Kill()
	p.fault(Stage, "server3", "kill", "server 3 crashes")
	p.must(q.servers[2].Restart(p.ctx))
	p.rec.add(Event{Lane: Stage, Kind: Fault, Text: "server 3 is back at once, without its data"},
		history.Event{Kind: history.Leader, Target: "server3"})
	b := q.client("B", 1, 2)
	b.begin("at work", b.hold(key))
	a.to("")
	b.to("")
}

func redlockClock(p *play) {
	key := p.key("R")
	q := p.quorum()
	a, b := q.client("A"), q.client("B")
	a.begin("at work", a.hold(key))
	p.shorten(time.Minute, q.urls(1, 3)...)
	p.fault(Stage, "server1", "clock", "the clocks of servers 1, 2 and 3 are set forward by a minute. (The clock of a server that runs cannot be moved from here: the lab shortens its leases by a minute instead, which to its clients is the same)")
	b.begin("at work", b.hold(key))
	a.to("")
	b.to("")
}
