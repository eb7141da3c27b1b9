package lab

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// Locks that renew themselves, and waiters that need a message.

var renewalRows = []Row{
	{
		ID: "renew-any-owner", Title: "renewal without a check of the owner", job: stock, Class: "S1", Lease: lease,
		Acquire: "SET R {me} NX PX 10000 → OK", Release: "script: if GET R = {me}, DEL R → 1", Renew: "PEXPIRE R 10000 → 1",
		Habit: "a watchdog added to a correct acquire and release",
		Why:   "A is cut off for longer than its lease, and B gets the lock. A's next PEXPIRE renews B's key, answers 1, and A believes that it still holds the lock. If B crashed now, A would renew B's lock for ever.",
		How:   "a renewal names the grant, and the store compares in the same step; A's context has ended before B gets the lock",
		Play: `
			A locks
			A is cut off: loses its network: renewals do not arrive
			11s later: A is cut off
			B locks
			A is back: the network is back
			A renews
			look
			A unlocks
			B unlocks`,
		sound: cutOff,
	},
	{
		ID: "renew-get-pexpire", Title: "renewal that reads the owner first, without WATCH", job: points, Class: "S1",
		Acquire: "SET R {me} NX PX 10000 → OK", Release: "script: if GET R = {me}, DEL R → 1", Lease: lease,
		Renew: "GET R → {me}\nat: between GET and PEXPIRE\nPEXPIRE R 10000 → 1",
		Habit: "the same, with a check by the client",
		Why:   "A's lease ends between its GET and its PEXPIRE, and B gets the lock. The PEXPIRE renews B's key, and A believes that it still holds the lock.",
		How:   "a renewal names the grant, and the store compares in the same step; A's context has ended before B gets the lock",
		Play: `
			A locks
			A renews up to between GET and PEXPIRE
			A thinks: the key is its own; next is the PEXPIRE
			11s later: A's watchdog is paused between the two
			B locks
			A goes on
			look
			A unlocks
			B unlocks`,
		sound: cutOff,
	},
	{
		ID: "watchdog-outlives-unlock", Title: "a watchdog that outlives the unlock", job: gift, Class: "L4",
		Acquire: "SET R O NX PX T; every T/3: SET R O PX T", Release: "script: if GET R = O, DEL R; stop the watchdog",
		Habit:   "the renewal repeats the SET; the watchdog is stopped after the unlock (compare redisson#7272)",
		Why:     "A due renewal is sent after the unlock, and creates the key again. No client holds the lock, and the watchdog keeps it taken as long as the process lives.",
		How:     "a renewal only renews an existing grant: after the release its answer is \"gone\"",
		unsound: watchdogOutlives, sound: lateRenewal,
	},
	{
		ID: "watchdog-stops", Title: "a watchdog that one failed renewal ends", job: points, Class: "S2",
		Acquire: "SET R O NX PX T; every T/3, script: if GET R = O, PEXPIRE R T; an error ends the loop",
		Release: "script: if GET R = O, DEL R",
		Habit:   "for { … if err != nil { log; return } } (compare redisson#4698)",
		Why:     "One renewal fails, the watchdog writes a line into a log and ends. A does not learn of it: its lease expires during its work, B gets the lock, and A works on.",
		How:     "a failed renewal is tried again until the lease ends, and then the holder's context is cancelled",
		unsound: watchdogStops, sound: failedRenewal,
	},
	{
		ID: "wakeup-lost", Title: "waiting for a message without a second try", job: stock, Class: "L2",
		Acquire: "SET R O NX PX T; if nil: SUBSCRIBE to the lock's channel and wait, then try again",
		Release: "script: if GET R = O, DEL R and PUBLISH",
		Habit:   "polling replaced by pub/sub",
		Why:     "A releases between B's try and B's SUBSCRIBE. No client receives the message, and no other follows: B sleeps while the lock is free.",
		How:     "a waiter has a place in a queue at the server, which hands it the lock. If the message is lost, the waiter learns it from the next renewal of its place, every third of the TTL",
		unsound: wakeupLost, sound: lostMessage,
	},
}

var compareAndExpire = script(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0`)

var compareDeletePublish = script(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end
redis.call('DEL', KEYS[1])
return redis.call('PUBLISH', ARGV[2], 'free')`)

// unlock is the correct release.
func (c *client) unlock(key string) bool {
	v := c.eval("script: if GET R = "+c.name+", DEL R", compareAndDelete, []string{key}, []string{c.name})
	c.released(v.Int == 1)
	return v.Int == 1
}

// watchdog returns a second goroutine of the client, with the same connection and attempt.
func (c *client) watchdog() *client {
	return &client{scenario: c.scenario, name: c.name, conn: c.conn, id: c.id}
}

// holder takes the lock, reads, works and releases.
func (c *client) holder(key string) func() {
	return func() {
		if !c.set(key, c.name) {
			c.failf("%s did not get the lock", c.name)
		}
		used, _ := c.reads(c.name, 0)
		c.at("at work")
		if used < c.job.limit {
			c.writes(c.name, used, 0)
		} else {
			c.concludes("nothing is left to do")
		}
		c.release()
		c.unlock(key)
	}
}

func watchdogOutlives(p *scenario) {
	key := p.key("R")
	a, b := p.client("A"), p.client("B")
	a.begin("at work", a.holder(key))
	w := a.watchdog()
	round := func() {
		w.at("before the renewal")
		w.do("SET", key, "A", "PX", leaseMillis)
	}
	w.begin("before the renewal", func() {
		for range 3 {
			round()
		}
	})
	w.concludes("its watchdog wakes up: a renewal is due")
	a.to("")
	w.to("before the renewal")
	p.show("no client holds the lock, but its key exists again")
	b.set(key, "B")
	for range 2 {
		p.pass(lease/3, "the watchdog goes on")
		if w.running {
			w.resume <- struct{}{}
			if _, ok := <-w.parked; !ok {
				w.running = false
			}
		}
	}
	b.set(key, "B")
	p.look(key)
	p.rec.addFormal(history.Event{Kind: history.State, Name: p.job.lock, N: 1})
}

func watchdogStops(p *scenario) {
	key := p.key("R")
	a, b := p.client("A"), p.client("B")
	a.begin("at work", a.holder(key))
	w := a.watchdog()
	p.pass(lease/3, "A's first renewal is due")
	a.conn.set(failing)
	w.begin("", func() {
		if _, err := w.conn.Run(p.ctx, compareAndExpire, []string{key}, []string{"A", leaseMillis}); err != nil {
			p.fault("A", "A", "error", "script: if GET R = A, PEXPIRE R 10000 → connection reset")
			w.concludes("its watchdog writes \"renewal failed\" into the log, and ends")
		}
	})
	p.pass(lease, "A works on, and nothing renews its lease")
	b.begin("at work", b.holder(key))
	a.to("")
	b.to("")
}

func wakeupLost(p *scenario) {
	key, channel := p.key("R"), p.prefix+"free"
	a, b := p.client("A"), p.client("B")
	woken := make(chan struct{}, 1)
	a.begin("at work", func() {
		a.set(key, "A")
		a.at("at work")
		a.works()
		a.release()
		v := a.eval("script: if GET R = A, DEL R and PUBLISH free", compareDeletePublish, []string{key},
			[]string{"A", channel})
		a.released(true)
		a.concludes("%s clients have received the message", render(v))
	})
	b.begin("between the try and SUBSCRIBE", func() {
		b.beginsAs(history.Event{TTL: lease, Wait: true})
		b.do("SET", key, "B", "NX", "PX", leaseMillis)
		b.at("between the try and SUBSCRIBE")
		stop, err := b.conn.Subscribe(p.ctx, channel, func(string) { woken <- struct{}{} }, func() {})
		p.must(err)
		b.cleanup = append(b.cleanup, stop)
		p.rec.add(Event{Lane: "B", Kind: Does, Text: "SUBSCRIBE free", Answer: "OK"},
			history.Event{Kind: history.Queued, Client: "B", ID: b.id, Name: p.job.lock})
		b.concludes("sleeps until the lock is free")
	})
	a.to("")
	b.to("")
	p.look(key)
	p.pass(time.Minute, "the lock is free, and B sleeps")
	p.show("at the server: PUBSUB NUMSUB free → %s: B is subscribed, but no client is left to send a message",
		p.plain(render(p.server(p.url, "PUBSUB", "NUMSUB", channel))))
	select {
	case <-woken:
		p.failf("B woke up")
	default:
	}
	b.concludes("sleeps for ever")
	p.rec.addFormal(history.Event{Kind: history.State, Name: p.job.lock})
}
