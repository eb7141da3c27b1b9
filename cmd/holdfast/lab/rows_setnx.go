package lab

import (
	"time"

	"github.com/holdfast-lock/holdfast/history"
)

// The locks of the time before SET had NX and PX.

var setnxRows = []Row{
	{
		ID: "setnx-expire", Title: "SETNX, then EXPIRE", job: stock, Class: "L1",
		Acquire: "SETNX R 1; if 1: EXPIRE R T", Release: "DEL R",
		Habit:   "two commands of a client library in a row, from before Redis 2.6.12",
		Why:     "A dies between the two commands. The key has no expiry, so nobody ever gets the lock again.",
		How:     "taking a lock and its lease are one step at the server: whoever dies is outlived by a TTL",
		unsound: setnxExpire, sound: holderDies,
	},
	{
		ID: "setnx-getset-clock", Title: "SETNX and GETSET of a timestamp, one clock ahead", job: points, Class: "S1",
		Acquire: "SETNX R exp → 1: EXPIRE R T; 0: GET R, if in the past GETSET R exp', own it if the old value is what was read", Release: "DEL R",
		Habit:   "the lock of the old SETNX manual page, with the clients' own clocks",
		Why:     "B's clock is 30 seconds ahead. It takes A's lease for over, and the lock from A in the middle of it.",
		How:     "no clock of a client is read: the server alone says when a lease is over",
		unsound: getsetClock, sound: rivalTries,
	},
	{
		ID: "setnx-getset-race", Title: "SETNX and GETSET of a timestamp, two at once", job: points, Class: "S1",
		Acquire: "as setnx-getset-clock", Release: "DEL R",
		Habit:   "the same, with clocks that agree",
		Why:     "B and C race for a dead lock. B loses the GETSET, but has overwritten C's timestamp with its own, older one, and wiped its expiry: D takes the lock while C holds it.",
		How:     "who loses a race writes nothing that others judge by",
		unsound: getsetRace, sound: raceForDead,
	},
	{
		ID: "setnx-getset-release", Title: "SETNX and GETSET of a timestamp, late release", job: stock, Class: "S1",
		Acquire: "as setnx-getset-clock", Release: "DEL R",
		Habit:   "the same, with work that takes longer than expected once",
		Why:     "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C enters beside B.",
		How:     "a slow holder renews; a release names the grant that it ends",
		unsound: getsetRelease, sound: slowHolder,
	},
}

// setnxExpire is the acquire of A1.
func (c *client) setnxExpire(key string) bool {
	c.asks(lease)
	if !got(c.do("SETNX", key, "1")) {
		c.fails("it is taken")
		return false
	}
	c.at("between SETNX and EXPIRE")
	c.do("EXPIRE", key, leaseSeconds)
	c.holds("holds the lock")
	return true
}

func setnxExpire(p *play) {
	key := p.key("R")
	a, b := p.client("A"), p.client("B")
	a.begin("between SETNX and EXPIRE", func() { a.setnxExpire(key) })
	a.crash("before it could say EXPIRE")
	p.look(key)
	b.wants(history.Event{TTL: lease, Wait: true})
	b.do("SETNX", key, "1")
	p.pass(time.Minute, "B tries again and again")
	b.do("SETNX", key, "1")
	p.pass(time.Hour, "B tries again and again")
	b.do("SETNX", key, "1")
	p.look(key)
	b.says("waits on. Nobody holds the lock, and nobody can take it: someone has to delete the key by hand")
	p.rec.addFormal(history.Event{Kind: history.State, Name: p.job.lock, N: 1})
}

// getset is the acquire of A2: the value is when the lease ends, by the client's clock and a second of tolerance. The
// client stops before the GETSET with the stamp that it is going to write.
func (c *client) getset(key string) bool {
	c.asks(lease)
	until := func() string { return stamp(c.clock() + lease + time.Second) }
	if got(c.do("SETNX", key, until())) {
		c.do("EXPIRE", key, leaseSeconds)
		c.holds("holds the lock")
		return true
	}
	old := c.do("GET", key).Text
	if millis(number(old)) >= c.clock() {
		c.fails("the timestamp is in the future: it is taken")
		return false
	}
	mine := until()
	c.at("before GETSET")
	if before := c.do("GETSET", key, mine).Text; before != old {
		c.fails("that is not what it has read: another was faster")
		return false
	}
	c.do("EXPIRE", key, leaseSeconds)
	c.holds("the timestamp was in the past: holds the lock")
	return true
}

func getsetClock(p *play) {
	key := p.key("R")
	a, b := p.client("A"), p.client("B")
	b.ahead = 30 * time.Second
	used := 0
	a.begin("at work", func() {
		a.getset(key)
		used, _ = p.reads("A", 0)
		a.at("at work")
		p.writes("A", used, 0)
		a.release()
		a.do("DEL", key)
	})
	p.show("timestamps are milliseconds since the beginning. B's clock is 30 s ahead")
	b.begin("before GETSET", func() {
		b.getset(key)
		b.works()
		b.release()
	})
	b.says("by its clock that is long past: takes the lock over")
	b.to("")
	a.to("")
}

func getsetRace(p *play) {
	key := p.key("R")
	a, b, c, d := p.client("A"), p.client("B"), p.client("C"), p.client("D")
	a.begin("after SETNX", func() {
		a.asks(lease)
		a.do("SETNX", key, stamp(a.clock()+lease+time.Second))
		a.at("after SETNX")
	})
	a.crash("before it could say EXPIRE: what the timestamp is there for")
	p.pass(15*time.Second, "A's timestamp is in the past now")
	b.begin("before GETSET", func() { b.getset(key) })
	b.says("is about to take it over, and is paused for a moment")
	p.pass(5*time.Second, "B is paused")
	used := 0
	c.begin("before GETSET", func() {
		c.getset(key)
		used, _ = p.reads("C", 0)
		c.at("at work")
		p.writes("C", used, 0)
		c.release()
	})
	c.to("at work")
	b.to("")
	p.show("B has lost, but its timestamp stands there now, and the expiry is gone")
	p.look(key)
	p.pass(7*time.Second, "C works, well inside its lease of 10 s")
	d.begin("before GETSET", func() {
		d.getset(key)
		d.works()
		d.release()
	})
	d.says("the timestamp is in the past: takes the lock over")
	d.to("")
	c.to("")
}

func getsetRelease(p *play) {
	key := p.key("R")
	take := func(c *client) bool { return c.getset(key) }
	lateDelete(p, take, func(c *client) {
		c.release()
		c.do("DEL", key)
	})
}

// lateDelete is the schedule of A2 (iii), A4 and A5: A outlives its lease, B enters, A's release removes B's lock, and C
// enters beside B.
func lateDelete(p *play, take func(*client) bool, release func(*client)) {
	a, b, c := p.client("A"), p.client("B"), p.client("C")
	holder := func(c *client) func() {
		return func() {
			if !take(c) {
				c.failf("%s did not get the lock", c.name)
			}
			used, _ := p.reads(c.name, 0)
			c.at("at work")
			if used < p.job.limit {
				p.writes(c.name, used, 0)
			} else {
				c.says("nothing left to do: leaves it alone")
			}
			release(c)
		}
	}
	a.begin("at work", holder(a))
	p.pass(lease+2*time.Second, "A is slow: a long query, a pause of its garbage collector, a machine that swaps")
	b.begin("at work", holder(b))
	a.to("")
	p.show("A's DEL has removed B's lock")
	c.begin("at work", holder(c))
	b.to("")
	c.to("")
}
