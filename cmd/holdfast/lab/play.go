package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/history"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// play is one run of one schedule: the clients, what they lock, and the record of what happened. The functions of a row get
// one and say in which order things happen. What keeps the schedule from being followed (the server does not answer,
// a client does not come to the step it should) ends the run: see must and play.run.
type play struct {
	ctx    context.Context
	rec    *Record
	url    string // of the server that clients connect to
	prefix string // of all keys
	guest  bool   // the server is not the lab's own: no key may stay without expiry
	job    *job
	at     *resource

	mu      sync.Mutex
	keys    map[string]bool // all that were written, for the end
	endless map[string]bool // those that the algorithm gave no expiry
	links   []*link
	tools   map[string]redislock.Conn // the lab's own connections, by URL
	cleanup []func()
	rate    *Rate
}

// scheduleError ends a run from within; see must.
type scheduleError struct{ err error }

// must ends the run if err is not nil.
func (p *play) must(err error) {
	if err != nil {
		panic(scheduleError{err})
	}
}

// failf ends the run: the schedule did not go as it was meant to.
func (p *play) failf(format string, args ...any) { p.must(fmt.Errorf(format, args...)) }

// run runs the schedule f and cleans up after it.
func (p *play) run(f func(*play)) (err error) {
	defer func() {
		err = errors.Join(err, p.clean())
	}()
	defer func() {
		switch v := recover().(type) {
		case nil:
		case scheduleError:
			err = v.err
			if cause := context.Cause(p.ctx); cause != nil {
				err = cause
			}
		default:
			panic(v)
		}
	}()
	f(p)
	return nil
}

// clean removes every key, and closes what is open. It does so also if the run was interrupted.
func (p *play) clean() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 3*time.Second)
	defer cancel()
	for _, f := range slices.Backward(p.cleanup) {
		f()
	}
	for _, l := range p.links {
		_ = l.Close()
	}
	var err error
	if p.guest {
		if keys := p.known(); len(keys) > 0 {
			var c redislock.Conn
			if c, err = p.tool(p.url); err == nil {
				_, err = askConn(ctx, c, append([]string{"DEL"}, keys...)...)
			}
			if err != nil {
				err = fmt.Errorf("keys that begin with %s are left, and run out by themselves: %w", p.prefix, err)
			}
		}
	}
	for _, c := range p.tools {
		_ = c.Close()
	}
	return err
}

func (p *play) known() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for k := range p.keys {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func (p *play) note(keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		p.keys[k] = true
	}
}

// key is a key of the algorithm, for this run alone.
func (p *play) key(name string) string {
	k := p.prefix + name
	p.note([]string{k})
	return k
}

// tool is a connection of the lab itself.
func (p *play) tool(url string) (redislock.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.tools[url]; c != nil {
		return c, nil
	}
	c, err := dial(url)
	if err == nil {
		p.tools[url] = c
	}
	return c, err
}

// forget closes the lab's own connection to a server that is gone.
func (p *play) forget(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.tools[url]; c != nil {
		_ = c.Close()
		delete(p.tools, url)
	}
}

// server asks the server at url as the lab itself.
func (p *play) server(url string, words ...string) redislock.Value {
	c, err := p.tool(url)
	p.must(err)
	v, err := askConn(p.ctx, c, words...)
	p.must(err)
	return v
}

// own starts a server for this run alone.
func (p *play) own(lines ...string) *Server {
	s, err := Start(p.ctx, lines...)
	p.must(err)
	p.cleanup = append(p.cleanup, s.Close)
	return s
}

// use makes a server that was started for this run the one that clients connect to.
func (p *play) use(s *Server) { p.url, p.guest = s.URL(), false }

// connect is a connection of one client.
func (p *play) connect(url string) *link {
	c, err := dial(url)
	p.must(err)
	l := newLink(c, p.note)
	p.mu.Lock()
	p.links = append(p.links, l)
	p.mu.Unlock()
	return l
}

// show is what the lab says or reads.
func (p *play) show(format string, args ...any) {
	p.rec.add(Event{Lane: Stage, Kind: Shows, Text: fmt.Sprintf(format, args...)})
}

// fault is something that breaks, seen by the checker as a fault of target. It returns the id of the fault.
func (p *play) fault(lane, target, kind, format string, args ...any) (id string) {
	id = fmt.Sprintf("fault%d", len(p.rec.Events()))
	p.rec.add(Event{Lane: lane, Kind: Fault, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Fault, ID: id, Target: target, Text: kind})
	return id
}

// pass lets d pass: at the servers, where every lease becomes shorter by d, and on the clock of the record. So nobody waits
// for it, and no slow machine spoils it. Keys without expiry stay.
func (p *play) pass(d time.Duration, why string, urls ...string) {
	if len(urls) == 0 {
		urls = []string{p.url}
	}
	ended := p.shorten(d, urls...)
	p.rec.skip(d)
	text := fmt.Sprintf("%s later: %s", spell(d), why)
	if ended > 0 {
		text += ". The lease ends at the server"
	}
	p.rec.add(Event{Lane: Stage, Kind: Time, Text: text})
}

// spell is a duration in words.
func spell(d time.Duration) string {
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := d / u.d; n > 0 && d%u.d == 0 {
			if n == 1 {
				return "1 " + u.name
			}
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return d.Round(100 * time.Millisecond).String()
}

// shorten ends leases earlier by d at some servers and returns how many are over.
func (p *play) shorten(d time.Duration, urls ...string) (ended int) {
	for _, url := range urls {
		for _, k := range p.known() {
			left := p.server(url, "PTTL", k).Int
			if left < 0 || p.unlimited(k) {
				continue
			}
			if left -= d.Milliseconds(); left <= 0 {
				ended++
			}
			p.server(url, "PEXPIRE", k, fmt.Sprint(max(left, 0)))
		}
	}
	return ended
}

func (p *play) unlimited(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endless[key]
}

// look shows what the server has under the lock's key.
func (p *play) look(key string) {
	v, left := p.server(p.url, "GET", key), p.server(p.url, "PTTL", key).Int
	text := fmt.Sprintf("at the server: GET %s → %s", p.plain(key), render(v))
	switch {
	case left == -1 || left > 0 && p.unlimited(key):
		text += ", and no expiry (PTTL → -1)"
	case left > 0:
		text += fmt.Sprintf(", for another %v", (time.Duration(left) * time.Millisecond).Round(100*time.Millisecond))
	}
	p.show("%s", text)
}

// plain is text without the prefix of the keys.
func (p *play) plain(text string) string { return strings.ReplaceAll(text, p.prefix, "") }

// render is an answer as redis-cli would show it, more or less.
func render(v redislock.Value) string {
	switch v.Kind {
	case redislock.Int:
		return fmt.Sprint(v.Int)
	case redislock.Text:
		return v.Text
	case redislock.List:
		var all []string
		for _, e := range v.List {
			all = append(all, render(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return "nil"
}

// dial is a connection to a server.
func dial(url string) (redislock.Conn, error) { return rueidisconn.Dial(url) }
