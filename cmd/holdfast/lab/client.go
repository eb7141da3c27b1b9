package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// client is one program that uses an algorithm of the lab: a connection, and a goroutine that stops
// at named steps.
type client struct {
	*scenario
	name string
	conn *link

	attempts int
	id       string // of the attempt
	asked    int64  // when it began

	parked  chan string   // the step at which it has stopped; closed when it has ended
	resume  chan struct{} // lets it go on; closed: it has crashed
	failure any           // what it panicked with
	running bool
}

// crashed unwinds a client that has crashed.
type crashed struct{}

// client returns a client with a connection to the server that most rows use.
func (p *scenario) client(name string) *client { return p.clientAt(name, p.url) }

func (p *scenario) clientAt(name, url string) *client {
	return &client{scenario: p, name: name, conn: p.connect(url)}
}

// begin lets the client run f up to the first step, which must be the one named; "" is the end.
func (c *client) begin(step string, f func()) {
	c.parked, c.resume = make(chan string), make(chan struct{})
	c.running = true
	go func() {
		defer close(c.parked)
		defer func() {
			if v := recover(); v != nil {
				if _, ok := v.(crashed); !ok {
					c.failure = v
				}
			}
		}()
		f()
	}()
	c.cleanupLater()
	c.arrive(step)
}

// cleanupLater ends the goroutine if the schedule does not.
func (c *client) cleanupLater() {
	c.cleanup = append(c.cleanup, func() {
		if c.running {
			close(c.resume)
			for range c.parked {
			}
		}
	})
}

// arrive waits until the client is at step.
func (c *client) arrive(step string) {
	got, ok := <-c.parked
	if !ok {
		c.running = false
		if c.failure != nil {
			panic(c.failure) // here, where scenario.run recovers it
		}
	}
	if got != step {
		c.failf("%s is at %q, not at %q", c.name, got, step)
	}
}

// to lets the client go on up to step; "" is the end.
func (c *client) to(step string) {
	c.resume <- struct{}{}
	c.arrive(step)
}

// at stops the client until the schedule lets it go on.
func (c *client) at(step string) {
	c.parked <- step
	if _, ok := <-c.resume; !ok {
		panic(crashed{})
	}
}

// do sends one command and returns the answer; an error ends the run.
func (c *client) do(words ...string) redislock.Value {
	v, err := c.try(words...)
	c.must(err)
	return v
}

// try sends one command.
func (c *client) try(words ...string) (redislock.Value, error) {
	e := Event{Lane: c.name, Kind: Does, Text: c.plain(strings.Join(words, " "))}
	v, err := c.send(words)
	e.Answer = c.plain(render(v))
	if err != nil {
		e.Answer = strings.TrimPrefix(err.Error(), driver.ErrUncertain.Error()+": ")
	}
	c.rec.add(e)
	return v, err
}

// safely runs a command, and then gives its key an expiry of ten minutes if it has none: on a
// user's server nothing may remain. The second answer is the time to live before that.
var safely = script(`
local answer = redis.call(unpack(ARGV))
local left = redis.call('PTTL', KEYS[1])
if left == -1 then redis.call('PEXPIRE', KEYS[1], 600000) end
return {answer, left}`)

func (c *client) send(words []string) (v redislock.Value, err error) {
	command := strings.ToUpper(words[0])
	// They set no expiry.
	bare := slices.Contains([]string{"SETNX", "GETSET", "INCR", "DECR", "RPUSH", "LPUSH"}, command) ||
		command == "SET" && !slices.Contains(words, "PX")
	if bare && c.userServer {
		if v, err = c.conn.Run(c.ctx, safely, words[1:2], words); err == nil && len(v.List) == 2 {
			if v.List[1].Int == -1 {
				c.mark(words[1], true)
			}
			v = v.List[0]
		}
	} else {
		v, err = c.conn.ask(c.ctx, words...)
	}
	if err != nil {
		return v, err
	}
	switch {
	case bare:
	case command == "EXPIRE", command == "PEXPIRE", command == "SET" && got(v):
		c.mark(words[1], false)
	}
	return v, nil
}

// mark notes whether the algorithm has left a key without expiry.
func (p *scenario) mark(key string, endless bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endless[key] = endless
}

// eval runs a script; text is how the timeline shows it.
func (c *client) eval(text string, s *redislock.Script, keys, args []string) redislock.Value {
	v, err := c.conn.Run(c.ctx, s, keys, args)
	c.must(err)
	for _, k := range keys {
		c.mark(k, false) // the lab's scripts set an expiry, or remove the key
	}
	c.rec.add(Event{Lane: c.name, Kind: Does, Text: c.plain(text), Answer: c.plain(render(v))})
	return v
}

// concludes records a conclusion of the client.
func (c *client) concludes(format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)})
}

// begins starts an attempt. The timeline shows only its first command.
func (c *client) begins(ttl time.Duration) { c.beginsAs(history.Event{TTL: ttl}) }

// beginsAs is begins with a mode other than exclusive.
func (c *client) beginsAs(e history.Event) {
	c.attempts++
	c.id = fmt.Sprintf("%s%d", c.name, c.attempts)
	c.asked = c.rec.now()
	e.T, e.Kind, e.Client, e.ID, e.Name = c.asked, history.Acquire, c.name, c.id, c.job.lock
	c.rec.addFormal(e)
}

// holds records the conclusion that the client has the lock.
func (c *client) holds(format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Granted, Client: c.name, ID: c.id, Name: c.job.lock, From: c.asked})
}

// fails records the conclusion that another client has the lock.
func (c *client) fails(format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Refused, Client: c.name, ID: c.id, Name: c.job.lock, Text: "held by another",
			Result: history.Rejected})
}

// renews records the conclusion that a renewal sent at from has succeeded.
func (c *client) renews(from int64, format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Renewed, Client: c.name, ID: c.id, Name: c.job.lock, From: from})
}

// release: from here on the client does not claim the lock.
func (c *client) release() {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: "has finished its work, and releases the lock"},
		history.Event{Kind: history.Release, Client: c.name, ID: c.id, Name: c.job.lock})
}

// released is the answer to a release.
func (c *client) released(ok bool) {
	r := history.Accepted
	if !ok {
		r = history.Rejected
	}
	c.rec.addFormal(history.Event{Kind: history.Released, Client: c.name, ID: c.id, Name: c.job.lock, Result: r})
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
