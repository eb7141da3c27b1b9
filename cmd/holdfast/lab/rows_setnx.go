package lab

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// The locks of the time before SET had NX and PX.

var setnxRows = []Row{
	{
		ID: "setnx-expire", Title: "SETNX, then EXPIRE", job: stock, Class: "L1",
		Acquire: "SETNX R 1; if 1: EXPIRE R T", Release: "DEL R",
		Habit:   "two commands of a client library in a row, from before Redis 2.6.12",
		Why:     "A crashes between the two commands. The key has no expiry, so no client ever gets the lock again.",
		How:     "the server grants the lock and its lease in one step: after a crash the lock becomes free within a TTL",
		unsound: setnxExpire, sound: holderDies,
	},
	{
		ID: "setnx-getset-clock", Title: "SETNX and GETSET of a timestamp, one clock ahead", job: points, Class: "S1",
		Acquire: "SETNX R exp → 1: EXPIRE R T; 0: GET R, if in the past GETSET R exp', own it if GETSET returns the same value as GET", Release: "DEL R",
		Habit:   "the lock of the old SETNX manual page, with the clients' own clocks",
		Why:     "B's clock is 30 seconds ahead. It believes that A's lease has expired, and takes the lock in the middle of A's lease.",
		How:     "no client's clock matters: the server alone decides when a lease expires",
		unsound: getsetClock, sound: rivalTries,
	},
	{
		ID: "setnx-getset-race", Title: "SETNX and GETSET of a timestamp, two at once", job: points, Class: "S1",
		Acquire: "as setnx-getset-clock", Release: "DEL R",
		Habit:   "the same, with synchronous clocks",
		Why:     "B and C race for the lock of a crashed client. B's GETSET loses, but it has overwritten C's timestamp with its own, older one, and removed the expiry: D takes the lock while C holds it.",
		How:     "a loser of a race writes nothing",
		unsound: getsetRace, sound: raceForDead,
	},
	{
		ID: "setnx-getset-release", Title: "SETNX and GETSET of a timestamp, late release", job: stock, Class: "S1",
		Acquire: "as setnx-getset-clock", Release: "DEL R",
		Habit:   "the same, with work that once takes longer than expected",
		Why:     "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C gets the lock while B holds it.",
		How:     "a slow holder renews its lease; a release names the grant that it ends",
		unsound: getsetRelease, sound: slowHolder,
	},
}

// setnxExpire is the acquire of A1.
func (c *client) setnxExpire(key string) bool {
	c.begins(lease)
	if !got(c.do("SETNX", key, "1")) {
		c.fails("it is taken")
		return false
	}
	c.at("between SETNX and EXPIRE")
	c.do("EXPIRE", key, leaseSeconds)
	c.holds("holds the lock")
	return true
}

func setnxExpire(p *scenario) {
	key := p.key("R")
	a, b := p.client("A"), p.client("B")
	a.begin("between SETNX and EXPIRE", func() { a.setnxExpire(key) })
	a.crash("before its EXPIRE")
	p.look(key)
	b.beginsAs(history.Event{TTL: lease, Wait: true})
	b.do("SETNX", key, "1")
	p.pass(time.Minute, "B tries again and again")
	b.do("SETNX", key, "1")
	p.pass(time.Hour, "B tries again and again")
	b.do("SETNX", key, "1")
	p.look(key)
	b.concludes("waits on. No client holds the lock, and none can take it: an operator must delete the key")
	p.rec.addFormal(history.Event{Kind: history.State, Name: p.job.lock, N: 1})
}

// getset is the acquire of A2: the value is the end of the lease by the client's clock, plus a
// second of tolerance. The client stops before the GETSET with the stamp that it is going to write.
func (c *client) getset(key string) bool {
	c.begins(lease)
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
		c.fails("the value has changed since its GET: another client was faster")
		return false
	}
	c.do("EXPIRE", key, leaseSeconds)
	c.holds("the timestamp was in the past: holds the lock")
	return true
}

func getsetClock(p *scenario) {
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
	p.show("timestamps are milliseconds since the start. B's clock is 30 s ahead")
	b.begin("before GETSET", func() {
		b.getset(key)
		b.works()
		b.release()
	})
	b.concludes("by its clock the lease ended long ago: takes over the lock")
	b.to("")
	a.to("")
}

func getsetRace(p *scenario) {
	key := p.key("R")
	a, b, c, d := p.client("A"), p.client("B"), p.client("C"), p.client("D")
	a.begin("after SETNX", func() {
		a.begins(lease)
		a.do("SETNX", key, stamp(a.clock()+lease+time.Second))
		a.at("after SETNX")
	})
	a.crash("before its EXPIRE. The timestamp is meant for this case")
	p.pass(15*time.Second, "now A's timestamp is in the past")
	b.begin("before GETSET", func() { b.getset(key) })
	b.concludes("wants to take over the lock, and is paused for a moment")
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
	p.show("B has lost the race, but the key has B's timestamp now, and no expiry")
	p.look(key)
	p.pass(7*time.Second, "C works, well inside its lease of 10 s")
	d.begin("before GETSET", func() {
		d.getset(key)
		d.works()
		d.release()
	})
	d.concludes("the timestamp is in the past: takes over the lock")
	d.to("")
	c.to("")
}

func getsetRelease(p *scenario) {
	key := p.key("R")
	take := func(c *client) bool { return c.getset(key) }
	lateDelete(p, take, func(c *client) {
		c.release()
		c.do("DEL", key)
	})
}

// lateDelete is the schedule of A2 (iii), A4 and A5: A works for longer than its lease, B gets the
// lock, A's release removes B's lock, and C gets the lock while B holds it.
func lateDelete(p *scenario, take func(*client) bool, release func(*client)) {
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
				c.concludes("nothing is left to do")
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
