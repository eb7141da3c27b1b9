package lab

import (
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/history"
)

// The lock whose timestamp is handed to the caller as a credential.

var credentialRows = []Row{
	{
		ID: "credential-overwritten", Title: "a timestamp as credential, overwritten by a loser", job: stock, Class: "L4",
		Acquire: "as setnx-getset-clock, exp = now + T + 15 s is the caller's credential; PEXPIRE after winning", Release: "GET R; if it is the credential: DEL R",
		Habit:   "home-made lock classes that return a number to unlock with",
		Why:     "B loses the race, but its GETSET has replaced C's credential. C, the true owner, cannot release: the lock stays, held by nobody.",
		How:     "the owner of a grant is written by the step that grants, and by nothing else",
		unsound: credentialOverwritten, sound: raceForDead,
	},
	{
		ID: "credential-compare-del", Title: "a timestamp as credential, compared before DEL", job: points, Class: "S1",
		Acquire: "as credential-overwritten", Release: "GET R; if it is the credential: DEL R",
		Habit:   "the same",
		Why:     "A's lease ends between its GET and its DEL. The DEL removes B's lock, and C enters beside B.",
		How:     "comparing and removing are one step at the server, and a release that comes late removes nothing",
		unsound: credentialCompare, sound: cutOff,
	},
	{
		ID: "credential-clock-del", Title: "a timestamp as credential, compared with the clock before DEL", job: gift, Class: "S1",
		Acquire: "as credential-overwritten", Release: "if the credential is still in the future: DEL R",
		Habit:   "the same, a round trip saved",
		Why:     "A looks at its clock, is paused, and sends a DEL that removes B's lock; C enters beside B.",
		How:     "comparing and removing are one step at the server, and a release that comes late removes nothing",
		unsound: credentialClock, sound: cutOff,
	},
}

// extra is what a credential's timestamp lies behind the lease.
const extra = 15 * time.Second

// credential is the acquire of A3. It returns "" if it did not get the lock.
func (c *client) credential(key string) string {
	c.asks(lease)
	for tries := 0; tries < 3; tries++ {
		mine := stamp(c.clock() + lease + extra)
		if got(c.do("SETNX", key, mine)) {
			c.do("PEXPIRE", key, leaseMillis)
			c.holds("holds the lock, with the credential %s", mine)
			return mine
		}
		old := c.do("GET", key).Text
		if old == "" {
			continue
		}
		if millis(number(old)) < c.clock() {
			c.at("before GETSET")
			before := c.do("GETSET", key, mine).Text
			if before == old || before == "" {
				c.do("PEXPIRE", key, leaseMillis)
				c.holds("holds the lock, with the credential %s", mine)
				return mine
			}
			c.says("that is not what it has read: another was faster")
		}
		time.Sleep(time.Millisecond) // part of the algorithm
	}
	c.fails("gives up")
	return ""
}

func credentialOverwritten(p *play) {
	key := p.key("R")
	a, b, c := p.client("A"), p.client("B"), p.client("C")
	a.begin("after SETNX", func() {
		a.asks(lease)
		a.do("SETNX", key, stamp(a.clock()+lease+extra))
		a.at("after SETNX")
	})
	a.crash("before it could say PEXPIRE")
	p.pass(30*time.Second, "A's timestamp is in the past now")
	b.begin("before GETSET", func() { b.credential(key) })
	b.says("is about to take it over, and is paused for a moment")
	credential := ""
	p.pass(time.Second, "B is paused")
	c.begin("before GETSET", func() {
		credential = c.credential(key)
		c.at("at work")
		c.works()
		c.release()
		ok := c.do("GET", key).Text == credential
		c.released(ok)
		if !ok {
			c.says("that is not its credential %s: it may not release", credential)
		}
	})
	c.to("at work")
	b.to("")
	p.show("B has lost, but its timestamp is what stands there now, without expiry")
	c.to("")
	p.look(key)
	left := millis(number(p.server(p.url, "GET", key).Text) - time.Duration(p.rec.now()).Milliseconds())
	p.show("nobody holds the lock, and nobody gets it for another %v", left.Round(time.Second))
	p.rec.addFormal(history.Event{Kind: history.State, Name: p.job.lock, N: 1})
}

func credentialCompare(p *play) {
	key := p.key("R")
	mine := map[string]string{}
	gapInRelease(p, func(c *client) bool {
		mine[c.name] = c.credential(key)
		return mine[c.name] != ""
	}, func(c *client) {
		if c.do("GET", key).Text != mine[c.name] {
			c.says("that is not its credential: leaves it alone")
			return
		}
		c.at("between the check and DEL")
		c.do("DEL", key)
	})
}

func credentialClock(p *play) {
	key := p.key("R")
	mine := map[string]string{}
	gapInRelease(p, func(c *client) bool {
		mine[c.name] = c.credential(key)
		return mine[c.name] != ""
	}, func(c *client) {
		if millis(number(mine[c.name])) < c.clock() {
			c.says("the credential is in the past: leaves the lock alone")
			return
		}
		c.says("it is %s ms, and the credential %s is in the future", strconv.FormatInt(c.clock().Milliseconds(), 10), mine[c.name])
		c.at("between the check and DEL")
		c.do("DEL", key)
	})
}
