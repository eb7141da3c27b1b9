package lab

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Ways of waiting for the locks of the other rows, and their cost at the server.

var pollRows = []Row{
	poll("poll-once", "one try", "a cron job that skips its run",
		"B leaves at once, and right after that the lock becomes free.", pollOnce),
	poll("poll-interval", "a fixed interval, and a maximum of tries", "for i := 0; i < 10; i++ { …; time.Sleep(…) }",
		"A waiter costs one request per interval, and leaves although the lock becomes free right after that.", pollInterval),
	poll("poll-deadline", "a fixed interval, until a deadline", "a timeout around the loop",
		"A waiter costs one request per interval, and leaves although the lock becomes free right after that.", pollDeadline),
	poll("poll-interrupt", "a fixed interval, until interrupted", "the loop of most libraries",
		"A waiter costs one request per interval until it gets the lock. Chance decides which waiter asks first.",
		pollInterrupt),
	poll("poll-spin-deadline", "a busy loop until a deadline", "while (now() < deadline) if (tryLock()) return true;",
		"Waiters ask as fast as they can until the deadline, slow down the holder, and leave although the lock becomes free right after that.",
		pollSpinDeadline),
	poll("poll-spin", "a busy loop", "for !tryLock() {}",
		"Waiters ask as fast as they can, and slow down all other clients of the server, the holder included.", pollSpin),
}

func poll(id, title, habit, why string, form pollForm) Row {
	return Row{
		ID: id, Title: "waiting by " + title, job: stock, Class: Cost, Servers: 1,
		Acquire: "SET R O NX PX T: " + title, Release: "script: if GET R = O, DEL R",
		Habit: habit, Why: why,
		How:     "a waiter has a place in a queue at the server, which sends it a message with the lock: it asks once, and then every third of its TTL",
		unsound: func(p *scenario) { polling(p, form) }, sound: queueing,
	}
}

// pollForm is how often a waiter tries, and for how long.
type pollForm struct {
	every    time.Duration // 0: at once
	tries    int           // at most; 0: any number
	deadline time.Duration
}

var waiterNames = []string{"B", "C", "D", "E"}

var (
	pollOnce      = pollForm{tries: 1}
	pollInterval  = pollForm{every: 20 * time.Millisecond, tries: 10}
	pollDeadline  = pollForm{every: 20 * time.Millisecond, deadline: 200 * time.Millisecond}
	pollInterrupt = pollForm{every: 20 * time.Millisecond}
	pollSpin      = pollForm{}

	pollSpinDeadline = pollForm{deadline: 200 * time.Millisecond}
)

// window is the time of the measurement for waiters without a limit. The schedule has no events in
// it.
const window = 250 * time.Millisecond

// requests returns the number of client requests at the server: the commands and scripts that
// clients sent, not the commands inside scripts.
func (p *scenario) requests() (n int) {
	for line := range strings.Lines(p.server(p.url, "INFO", "commandstats").Text) {
		for _, c := range []string{"set", "evalsha", "eval", "subscribe"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+c+":calls="); ok {
				count, _, _ := strings.Cut(rest, ",")
				n += int(number(count))
			}
		}
	}
	return n
}

func polling(p *scenario, form pollForm) {
	p.use(p.own())
	key := p.key("R")
	a := p.client("A")
	a.set(key, "A")
	p.show("B, C, D and E want the lock")
	ctx, interrupt := context.WithCancel(p.ctx)
	defer interrupt()
	var waiters []*client
	for _, name := range waiterNames {
		waiters = append(waiters, p.client(name))
	}
	before, began := p.requests(), time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var winner string
	unserved := 0
	for _, c := range waiters {
		wg.Go(func() {
			ok := c.polls(ctx, key, form)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				winner = c.name
				interrupt() // one winner is enough
			} else {
				unserved++
			}
		})
	}
	leaves := form.tries > 0 || form.deadline > 0
	if leaves {
		wg.Wait()
	} else {
		select {
		case <-time.After(window):
		case <-p.ctx.Done():
			p.must(p.ctx.Err())
		}
	}
	took := time.Since(began)
	p.rate = &Rate{Waiters: len(waiterNames), Requests: p.requests() - before, Window: took}
	p.show("measured at the server (INFO commandstats): %v", p.rate)
	a.unlockRecorded(key)
	wg.Wait()
	if leaves {
		p.rate.Unserved = unserved
		p.look(key)
		p.show("the lock is free, and all waiters have left")
	} else {
		p.show("%s happened to ask first; the other waiters were interrupted", winner)
	}
}

// polls waits in the form of a row. The timeline does not show the many tries.
func (c *client) polls(ctx context.Context, key string, form pollForm) bool {
	if form.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, form.deadline)
		defer cancel()
	}
	for n := 1; ; n++ {
		v, err := c.conn.ask(ctx, "SET", key, c.name, "NX", "PX", leaseMillis)
		if err == nil && got(v) {
			c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: "gets the lock"})
			return true
		}
		if n == form.tries || ctx.Err() != nil {
			c.concludes("leaves, after %d tries", n)
			return false
		}
		if form.every > 0 {
			select {
			case <-time.After(form.every):
			case <-ctx.Done():
			}
		}
	}
}

// unlockRecorded is release and unlock of a client that holds the lock.
func (c *client) unlockRecorded(key string) {
	c.release()
	c.unlock(key)
}

// queueing is holdfast with as many waiters for the same time. The leases have their default
// length.
func queueing(p *scenario) {
	p.use(p.own())
	a := p.userWith("A", holdfast.DefaultTTL, redislock.Config{})
	g := a.locks()
	p.want(g != nil, "A did not get a free lock")
	var queue []*queued
	before := p.requests()
	began := time.Now()
	for _, name := range waiterNames {
		queue = append(queue, p.userWith(name, holdfast.DefaultTTL, redislock.Config{}).waits())
	}
	entry := p.requests() - before
	select {
	case <-time.After(max(window-time.Since(began), 0)):
	case <-p.ctx.Done():
		p.must(p.ctx.Err())
	}
	between := p.requests()
	select { // now all are in the queue, and ask only every third of the TTL
	case <-time.After(window):
	case <-p.ctx.Done():
		p.must(p.ctx.Err())
	}
	p.rate = &Rate{Waiters: len(waiterNames), Requests: p.requests() - between, Window: window}
	p.show(
		"measured at the server (INFO commandstats): %d requests to join the queue (a session and a place each); then %v",
		entry, p.rate)
	g.ends()
	for _, w := range queue {
		h := w.granted(p)
		p.want(h.releases() == nil, "the release of %s failed", h.u.name)
	}
}
