package lab

import "time"

// The locks of SET with NX and PX, and of one script.

var setRows = []Row{
	{
		ID: "lua-setnx-expire", Title: "a script of SETNX and EXPIRE, DEL", job: stock, Class: "S1",
		Acquire: "script: SETNX R lock, EXPIRE R T", Release: "DEL R",
		Habit:   "setnx-expire fixed with a script, without a change of the release",
		Why:     "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C gets the lock while B holds it.",
		How:     "a slow holder renews its lease; a release names the grant that it ends",
		unsound: luaSetnxExpire, sound: slowHolder,
	},
	{
		ID: "setpx-del", Title: "SET NX PX, DEL", job: points, Class: "S1",
		Acquire: "SET R 1 NX PX T", Release: "DEL R",
		Habit:   "what most tutorials show; defer client.Del(key)",
		Why:     "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C gets the lock while B holds it. B's DEL then removes C's lock, and so on.",
		How:     "a slow holder renews its lease; a release names the grant that it ends",
		unsound: setpxDel, sound: slowHolder,
	},
	{
		ID: "setpx-get-del", Title: "SET NX PX with an owner, GET and DEL", job: gift, Class: "S1",
		Acquire: "SET R O NX PX T", Release: "GET R; if it is O: DEL R",
		Habit:   "the client compares the owner",
		Why:     "A's lease ends between its GET and its DEL. The DEL removes B's lock, and C gets the lock while B holds it.",
		How:     "the server compares and removes in one step, so a late release removes nothing",
		unsound: setpxGetDel, sound: cutOff,
	},
	{
		ID: "setpx-lua", Title: "SET NX PX with an owner, released by script, never renewed", job: points, Class: "S2",
		Acquire: "SET R O NX PX T", Release: "script: if GET R = O, DEL R",
		Habit:   "the recipe of the Redis manual, and most small libraries",
		Why:     "The release is correct. But A works for longer than its lease, does not learn that, and works on while B holds the lock.",
		How:     "a lease renews itself; if it cannot, its context ends before another client gets the lock, and the resource refuses its token",
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

func luaSetnxExpire(p *scenario) {
	key := p.key("R")
	take := func(c *client) bool {
		c.begins(lease)
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
	c.begins(lease)
	if !got(c.do("SET", key, value, "NX", "PX", leaseMillis)) {
		c.fails("it is taken")
		return false
	}
	c.holds("holds the lock")
	return true
}

func setpxDel(p *scenario) {
	key := p.key("R")
	lateDelete(p, func(c *client) bool { return c.set(key, "1") }, func(c *client) {
		c.release()
		c.do("DEL", key)
	})
}

func setpxGetDel(p *scenario) {
	key := p.key("R")
	gapInRelease(p, func(c *client) bool { return c.set(key, c.name) }, func(c *client) {
		if owner := c.do("GET", key).Text; owner != c.name {
			c.concludes("the key is %s's: it does not delete the key", owner)
			return
		}
		c.at("between the check and DEL")
		c.do("DEL", key)
	})
}

// gapInRelease is the schedule of A3 and A6: A's lease ends between the check of its release and
// the DEL, which removes B's lock.
func gapInRelease(p *scenario, take func(*client) bool, release func(*client)) {
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
				c.concludes("finds no work to do")
			}
			c.release()
			release(c)
		}
	}
	a.begin("between the check and DEL", holder(a, false))
	a.concludes("the key is still its own; next is the DEL")
	p.pass(lease+2*time.Second, "A is paused between the two")
	b.begin("at work", holder(b, true))
	a.to("")
	p.show("A's DEL has removed B's lock")
	c.begin("at work", holder(c, true))
	b.finish()
	c.finish()
}

// finish lets a client go on to its end, past the steps of its release.
func (c *client) finish() {
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

func setpxLua(p *scenario) {
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
				c.concludes("the key was not its own any more. It learns this only after its work")
			}
		}
	}
	a.begin("at work", holder(a))
	p.pass(lease+2*time.Second, "A is slow, and does not learn that its lease has ended")
	b.begin("at work", holder(b))
	a.to("")
	b.to("")
}
