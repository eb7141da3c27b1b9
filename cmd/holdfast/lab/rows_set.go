package lab

import "time"

// The locks of SET with NX and PX, and of one script.

var setRows = []Row{
	{
		ID: "lua-setnx-expire", Title: "a script of SETNX and EXPIRE, DEL", job: stock, Class: "S1",
		Acquire: "script: SETNX R lock, EXPIRE R T", Release: "DEL R",
		Habit:   "setnx-expire repaired with a script, the release left as it was",
		Why:     "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C enters beside B.",
		How:     "a slow holder renews; a release names the grant that it ends",
		unsound: luaSetnxExpire, sound: slowHolder,
	},
	{
		ID: "setpx-del", Title: "SET NX PX, DEL", job: points, Class: "S1",
		Acquire: "SET R 1 NX PX T", Release: "DEL R",
		Habit:   "what most tutorials show; defer client.Del(key)",
		Why:     "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C enters beside B. B's DEL then removes C's: it goes on with every slow holder.",
		How:     "a slow holder renews; a release names the grant that it ends",
		unsound: setpxDel, sound: slowHolder,
	},
	{
		ID: "setpx-get-del", Title: "SET NX PX with an owner, GET and DEL", job: gift, Class: "S1",
		Acquire: "SET R O NX PX T", Release: "GET R; if it is O: DEL R",
		Habit:   "the owner is compared, by the client",
		Why:     "A's lease ends between its GET and its DEL. The DEL removes B's lock, and C enters beside B.",
		How:     "comparing and removing are one step at the server, and a release that comes late removes nothing",
		unsound: setpxGetDel, sound: cutOff,
	},
	{
		ID: "setpx-lua", Title: "SET NX PX with an owner, released by script, never renewed", job: points, Class: "S2",
		Acquire: "SET R O NX PX T", Release: "script: if GET R = O, DEL R",
		Habit:   "the recipe of the Redis manual, and most small libraries",
		Why:     "The release is sound. But A outlives its lease, is not told, and works on beside B.",
		How:     "a lease renews itself; if it cannot, its context ends before anyone else gets the lock, and the resource refuses its token",
		unsound: setpxLua, sound: cutOff,
	},
}

var setnxThenExpire = script(`
if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0`)

var compareAndDelete = script(`
local owner = redis.call('GET', KEYS[1])
if not owner then return nil end
if owner == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

func luaSetnxExpire(p *play) {
	key := p.key("R")
	take := func(c *client) bool {
		c.asks(lease)
		if !got(c.eval("script: SETNX R lock, EXPIRE R 10", setnxThenExpire, []string{key}, []string{"lock", leaseSeconds})) {
			c.fails("it is taken")
			return false
		}
		c.holds("holds the lock")
		return true
	}
	lateDelete(p, take, func(c *client) {
		c.release()
		c.do("DEL", key)
	})
}

// set is SET NX PX with some value.
func (c *client) set(key, value string) bool {
	c.asks(lease)
	if !got(c.do("SET", key, value, "NX", "PX", leaseMillis)) {
		c.fails("it is taken")
		return false
	}
	c.holds("holds the lock")
	return true
}

func setpxDel(p *play) {
	key := p.key("R")
	lateDelete(p, func(c *client) bool { return c.set(key, "1") }, func(c *client) {
		c.release()
		c.do("DEL", key)
	})
}

func setpxGetDel(p *play) {
	key := p.key("R")
	gapInRelease(p, func(c *client) bool { return c.set(key, c.name) }, func(c *client) {
		if owner := c.do("GET", key).Text; owner != c.name {
			c.says("that is %s's: leaves it alone", owner)
			return
		}
		c.at("between the check and DEL")
		c.do("DEL", key)
	})
}

// gapInRelease is the schedule of A3 and A6: A's lease ends between the check of its release and the DEL, which
// removes B's lock.
func gapInRelease(p *play, take func(*client) bool, release func(*client)) {
	a, b, c := p.client("A"), p.client("B"), p.client("C")
	holder := func(c *client, stop bool) func() {
		return func() {
			if !take(c) {
				c.failf("%s did not get the lock", c.name)
			}
			used, _ := p.reads(c.name, 0)
			if stop {
				c.at("at work")
				if used < p.job.limit {
					p.writes(c.name, used, 0)
				}
			} else {
				c.says("finds that it has nothing to do after all")
			}
			c.release()
			release(c)
		}
	}
	a.begin("between the check and DEL", holder(a, false))
	a.says("it is still its own; now the DEL is due")
	p.pass(lease+2*time.Second, "A is paused between the two")
	b.begin("at work", holder(b, true))
	a.to("")
	p.show("A's DEL has removed B's lock")
	c.begin("at work", holder(c, true))
	b.rest()
	c.rest()
}

// rest lets a client go on to its end, past the steps of its release.
func (c *client) rest() {
	for c.running {
		c.resume <- struct{}{}
		if _, ok := <-c.parked; !ok {
			c.running = false
			if c.failure != nil {
				panic(c.failure)
			}
		}
	}
}

func setpxLua(p *play) {
	key := p.key("R")
	a, b := p.client("A"), p.client("B")
	holder := func(c *client) func() {
		return func() {
			c.set(key, c.name)
			used, _ := p.reads(c.name, 0)
			c.at("at work")
			p.writes(c.name, used, 0)
			c.release()
			v := c.eval("script: if GET R = "+c.name+", DEL R", compareAndDelete, []string{key}, []string{c.name})
			c.released(v.Int == 1)
			if v.Int != 1 {
				c.says("was not its own any more. Now it knows, after the work")
			}
		}
	}
	a.begin("at work", holder(a))
	p.pass(lease+2*time.Second, "A is slow, and nothing tells it that its lease is over")
	b.begin("at work", holder(b))
	a.to("")
	b.to("")
}
