package lab

import (
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// The lock that gives its timestamp to the caller as a credential.

var credentialRows = []Row{
	{
		ID: "credential-overwritten", Title: "a timestamp as credential, overwritten by the loser of a race", job: stock,
		Class:   "L4",
		Acquire: "as setnx-getset-clock, exp = now + T + 15 s is the caller's credential; PEXPIRE after winning",
		Release: "GET R; if it is the credential: DEL R",
		Habit:   "home-made lock classes that return a number to unlock with",
		Why:     "B loses the race, but its GETSET has replaced C's credential. C, the true owner, cannot release: the lock stays taken without a holder.",
		How:     "only the step that grants the lock writes its owner",
		unsound: credentialOverwritten, sound: raceForDead,
	},
	{
		ID: "credential-compare-del", Title: "a timestamp as credential, compared before DEL", job: points, Class: "S1",
		Acquire: "as credential-overwritten", Release: "GET R; if it is the credential: DEL R",
		Habit:   "the same",
		Why:     "A's lease ends between its GET and its DEL. The DEL removes B's lock, and C gets the lock while B holds it.",
		How:     "the server compares and removes in one step, so a late release removes nothing",
		unsound: credentialCompare, sound: cutOff,
	},
	{
		ID: "credential-clock-del", Title: "a timestamp as credential, compared with the clock before DEL", job: gift,
		Class:   "S1",
		Acquire: "as credential-overwritten", Release: "if the credential is still in the future: DEL R",
		Habit:   "the same, with one round trip less",
		Why:     "A looks at its clock, is paused, and sends a DEL that removes B's lock; C gets the lock while B holds it.",
		How:     "the server compares and removes in one step, so a late release removes nothing",
		unsound: credentialClock, sound: cutOff,
	},
}

// extra is how much later than the lease's end a credential's timestamp is.
const extra = 15 * time.Second

// credential is the acquire of A3. It returns "" if it did not get the lock.
func (c *client) credential(key string) string {
	c.begins(lease)
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
			c.concludes("the value has changed since its GET: another client was faster")
		}
		time.Sleep(time.Millisecond) // part of the algorithm
	}
	c.fails("gives up")
	return ""
}

func credentialOverwritten(p *scenario) {
	key := p.key("R")
	a, b, c := p.client("A"), p.client("B"), p.client("C")
	a.begin("after SETNX", func() {
		a.begins(lease)
		a.do("SETNX", key, stamp(a.clock()+lease+extra))
		a.at("after SETNX")
	})
	a.crash("before its PEXPIRE")
	p.pass(30*time.Second, "now A's timestamp is in the past")
	b.begin("before GETSET", func() { b.credential(key) })
	b.concludes("wants to take over the lock, and is paused for a moment")
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
			c.concludes("the value is not its credential %s: it may not release", credential)
		}
	})
	c.to("at work")
	b.to("")
	p.show("B has lost the race, but the key has B's timestamp now, without expiry")
	c.to("")
	p.look(key)
	left := millis(number(p.server(p.url, "GET", key).Text) - time.Duration(p.rec.now()).Milliseconds())
	p.show("no client holds the lock, and no client can get it for another %v", left.Round(time.Second))
	p.rec.addFormal(history.Event{Kind: history.State, Name: p.job.lock, N: 1})
}

func credentialCompare(p *scenario) {
	key := p.key("R")
	mine := map[string]string{}
	gapInRelease(p, func(c *client) bool {
		mine[c.name] = c.credential(key)
		return mine[c.name] != ""
	}, func(c *client) {
		if c.do("GET", key).Text != mine[c.name] {
			c.concludes("the value is not its credential: it does not delete the key")
			return
		}
		c.at("between the check and DEL")
		c.do("DEL", key)
	})
}

func credentialClock(p *scenario) {
	key := p.key("R")
	mine := map[string]string{}
	gapInRelease(p, func(c *client) bool {
		mine[c.name] = c.credential(key)
		return mine[c.name] != ""
	}, func(c *client) {
		if millis(number(mine[c.name])) < c.clock() {
			c.concludes("the credential is in the past: it does not delete the key")
			return
		}
		c.concludes("its clock shows %s ms, and the credential %s is in the future",
			strconv.FormatInt(c.clock().Milliseconds(), 10), mine[c.name])
		c.at("between the check and DEL")
		c.do("DEL", key)
	})
}
