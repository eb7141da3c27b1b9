package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/history"
	"github.com/holdfast-lock/holdfast/redislock"
)

// client is one program that uses an algorithm of the lab: a goroutine that stops where at says, and a connection.
type client struct {
	*play
	name  string
	conn  *link
	ahead time.Duration // of its clock

	attempts int
	id       string // of the attempt
	asked    int64  // when it began

	parked  chan string   // where it has stopped; closed when it has ended
	resume  chan struct{} // goes on; closed: it has crashed
	failure any           // what it panicked with
	running bool
}

// crashed unwinds a client that is no more.
type crashed struct{}

// client makes a client, with a connection to the server that most rows use.
func (p *play) client(name string) *client { return p.clientAt(name, p.url) }

func (p *play) clientAt(name, url string) *client {
	return &client{play: p, name: name, conn: p.connect(url)}
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
			panic(c.failure) // here, where play.run sees it
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

// crash ends the client where it has stopped.
func (c *client) crash(why string) {
	close(c.resume)
	for range c.parked {
	}
	c.running = false
	c.conn.set(dead)
	c.rec.add(Event{Lane: c.name, Kind: Fault, Text: "dies here: " + why}, history.Event{Kind: history.Died, Client: c.name})
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

// safely runs a command and gives its key an expiry of ten minutes if it has none: on a server that is not the
// lab's own nothing may stay behind. The second answer is the time to live before that.
var safely = script(`
local answer = redis.call(unpack(ARGV))
local left = redis.call('PTTL', KEYS[1])
if left == -1 then redis.call('PEXPIRE', KEYS[1], 600000) end
return {answer, left}`)

func (c *client) send(words []string) (v redislock.Value, err error) {
	command := strings.ToUpper(words[0])
	bare := command == "SETNX" || command == "GETSET" || command == "INCR" || command == "DECR" // they give no expiry
	if bare && c.guest {
		if v, err = c.conn.Run(c.ctx, safely, words[1:2], words); err == nil && len(v.List) == 2 {
			v = v.List[0]
		}
	} else {
		v, err = c.conn.ask(c.ctx, words...)
	}
	if err != nil {
		return v, err
	}
	switch {
	case command == "SETNX" && got(v), command == "GETSET":
		c.mark(words[1], true)
	case command == "EXPIRE", command == "PEXPIRE", command == "SET" && got(v): // SET has PX here
		c.mark(words[1], false)
	}
	return v, nil
}

// mark notes whether the algorithm has given a key no expiry.
func (p *play) mark(key string, endless bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endless[key] = endless
}

// eval runs a script; text is how the timeline shows it.
func (c *client) eval(text string, s *redislock.Script, keys, args []string) redislock.Value {
	v, err := c.conn.Run(c.ctx, s, keys, args)
	c.must(err)
	for _, k := range keys {
		c.mark(k, false) // the scripts of the lab set an expiry, or remove the key
	}
	c.rec.add(Event{Lane: c.name, Kind: Does, Text: c.plain(text), Answer: c.plain(render(v))})
	return v
}

// clock is what the client's clock shows, in seconds since the beginning of the timeline.
func (c *client) clock() time.Duration { return time.Duration(c.rec.now()) + c.ahead }

// stamp is a time as the algorithms of the lab write it: milliseconds.
func stamp(t time.Duration) string { return strconv.FormatInt(t.Milliseconds(), 10) }

// says is what the client concludes.
func (c *client) says(format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)})
}

// asks begins an attempt. Nothing is shown: the first command shows it.
func (c *client) asks(ttl time.Duration) { c.wants(history.Event{TTL: ttl}) }

// wants is asks for another mode than exclusive.
func (c *client) wants(e history.Event) {
	c.attempts++
	c.id = fmt.Sprintf("%s%d", c.name, c.attempts)
	c.asked = c.rec.now()
	e.T, e.Kind, e.Client, e.ID, e.Name = c.asked, history.Acquire, c.name, c.id, c.job.lock
	c.rec.addFormal(e)
}

// holds is the conclusion that the lock is held.
func (c *client) holds(format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Granted, Client: c.name, ID: c.id, Name: c.job.lock, From: c.asked})
}

// fails is the conclusion that somebody else holds it.
func (c *client) fails(format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Refused, Client: c.name, ID: c.id, Name: c.job.lock, Text: "held by another", Result: history.Rejected})
}

// renews is the conclusion that a renewal sent at from has worked.
func (c *client) renews(from int64, format string, args ...any) {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Renewed, Client: c.name, ID: c.id, Name: c.job.lock, From: from})
}

// lets go: from here on the client does not claim the lock.
func (c *client) release() {
	c.rec.add(Event{Lane: c.name, Kind: Thinks, Text: "is done, and releases"},
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
