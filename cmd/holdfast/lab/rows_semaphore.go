package lab

import (
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// Semaphores that count.

var semaphoreRows = []Row{
	{
		ID: "semaphore-release-retry", Title: "a counter as semaphore, release sent again after a lost reply", job: encoders,
		Class:   "S5",
		Acquire: "DECR R; if negative: INCR R, and none is free", Release: "INCR R, again if no answer came",
		Habit:   "a counter of free permits; clients that repeat a command on a new connection",
		Why:     "A's INCR is executed, but its answer is lost, and the client sends it again. From now on there is one permit too many: three clients work where two may.",
		How:     "a release names the grant that it ends: sent twice, it does nothing the second time",
		unsound: semaphoreRetry, sound: lostRelease,
	},
	{
		ID: "semaphore-counter-crash", Title: "a counter as semaphore, a holder dies", job: encoders, Class: "L1",
		Acquire: "DECR R; if negative: INCR R, and none is free", Release: "INCR R",
		Habit:   "a counter of free permits",
		Why:     "A and B crash with their permits. A counter does not record the holders, so the permits never return.",
		How:     "each permit is a lease: a crashed client's permits are free after a TTL",
		unsound: semaphoreCrash, sound: permitHoldersDie,
	},
}

// encoders is a job of which two may run.
var encoders = &job{lock: "encoders", limit: 2}

// decr is the acquire.
func (c *client) decr(key string, wait bool) bool {
	c.beginsAs(history.Event{Mode: driver.Permits, N: 1, Limit: 2, TTL: lease, Wait: wait})
	if c.do("DECR", key).Int < 0 {
		c.do("INCR", key)
		if !wait {
			c.fails("no permit is free")
		}
		return false
	}
	c.holds("has a permit")
	return true
}

// fill sets the counter to two permits.
func (p *scenario) fill(key string) {
	p.server(p.url, "SET", key, "2", "PX", "600000")
	p.mark(key, true)
	p.show("SET R 2: two permits")
}

func semaphoreRetry(p *scenario) {
	key := p.key("R")
	p.fill(key)
	a, b, c, d := p.client("A"), p.client("B"), p.client("C"), p.client("D")
	a.decr(key, false)
	b.decr(key, false)
	c.decr(key, false)
	a.release()
	a.conn.set(losing)
	if _, err := a.try("INCR", key); err != nil {
		p.fault("A", "A", "lost reply", "the answer is lost on its way: the connection broke")
		a.concludes("does not know the outcome of its command, connects again and repeats it")
		a.do("INCR", key)
	}
	a.released(true)
	p.look(key)
	c.decr(key, false)
	d.decr(key, false)
	p.show("B, C and D work at the same time, with a limit of 2")
	for _, x := range []*client{b, c, d} {
		x.release()
		x.do("INCR", key)
		x.released(true)
	}
	p.look(key)
}

func semaphoreCrash(p *scenario) {
	key := p.key("R")
	p.fill(key)
	a, b, c := p.client("A"), p.client("B"), p.client("C")
	for _, x := range []*client{a, b} {
		x.begin("at work", func() {
			x.decr(key, false)
			x.at("at work")
		})
	}
	a.crash("the process is killed")
	b.crash("the process is killed")
	c.decr(key, true)
	for range 2 {
		p.pass(lease*360, "C tries again and again")
		if c.do("DECR", key).Int < 0 {
			c.do("INCR", key)
		}
	}
	p.look(key)
	c.concludes("waits on. No client works, and none can get a permit")
	p.rec.addFormal(history.Event{Kind: history.State, Name: p.job.lock, N: 2, Limit: 2})
}
