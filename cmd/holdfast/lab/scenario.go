package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// scenario is one run of one schedule: its clients, the lock, and the record. The functions of a
// row get a scenario and determine the order of events. Any obstacle to the schedule ends the run,
// for example a silent server or a client that does not reach its step. See must and scenario.run.
type scenario struct {
	ctx        context.Context
	rec        *Record
	url        string // of the server that clients connect to
	prefix     string // of all keys
	userServer bool   // the server is the user's: no key may remain without expiry
	job        *job
	engine     engine
	at         *resource

	mu      sync.Mutex
	keys    map[string]bool // all written ones, for clean
	endless map[string]bool // those without expiry by the algorithm
	links   []*link
	tools   map[string]redislock.Conn // the lab's own connections, by URL
	cleanup []func()
	rate    *Rate
}

// scheduleError ends a run from within; see must.
type scheduleError struct{ err error }

// must ends the run if err is not nil.
func (p *scenario) must(err error) {
	if err != nil {
		panic(scheduleError{err})
	}
}

// failf ends the run: it did not follow the schedule.
func (p *scenario) failf(format string, args ...any) { p.must(fmt.Errorf(format, args...)) }

// run runs the schedule f and cleans up after it.
func (p *scenario) run(f func(*scenario)) (err error) {
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

// clean removes every key, and closes all connections. It does so even if the run was interrupted.
func (p *scenario) clean() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 3*time.Second)
	defer cancel()
	for _, f := range slices.Backward(p.cleanup) {
		f()
	}
	for _, l := range p.links {
		_ = l.Close()
	}
	var err error
	if p.userServer {
		if keys := p.known(); len(keys) > 0 {
			var c redislock.Conn
			if c, err = p.labConn(p.url); err == nil {
				_, err = askConn(ctx, c, append([]string{"DEL"}, keys...)...)
			}
			if err != nil {
				err = fmt.Errorf("keys that begin with %s remain until they expire: %w", p.prefix, err)
			}
		}
	}
	for _, c := range p.tools {
		_ = c.Close()
	}
	return err
}

func (p *scenario) known() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for k := range p.keys {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

func (p *scenario) note(keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		p.keys[k] = true
	}
}

// key returns a key of the algorithm, for this run alone.
func (p *scenario) key(name string) string {
	k := p.prefix + name
	p.note([]string{k})
	return k
}

// labConn returns a connection of the lab itself.
func (p *scenario) labConn(url string) (redislock.Conn, error) {
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

// forget closes the lab's own connection to a killed server.
func (p *scenario) forget(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.tools[url]; c != nil {
		_ = c.Close()
		delete(p.tools, url)
	}
}

// server sends a command of the lab itself to the server at url.
func (p *scenario) server(url string, words ...string) redislock.Value {
	c, err := p.labConn(url)
	p.must(err)
	v, err := askConn(p.ctx, c, words...)
	p.must(err)
	return v
}

// own starts a server for this run alone.
func (p *scenario) own(lines ...string) *Server {
	s, err := Start(p.ctx, lines...)
	p.must(err)
	p.cleanup = append(p.cleanup, s.Close)
	return s
}

// use has clients connect to a server that was started for this run.
func (p *scenario) use(s *Server) { p.url, p.userServer = s.URL(), false }

// connect returns a connection of one client.
func (p *scenario) connect(url string) *link {
	c, err := dial(url)
	p.must(err)
	l := newLink(c, p.note)
	p.mu.Lock()
	p.links = append(p.links, l)
	p.mu.Unlock()
	return l
}

// show records a text of the lab, or a value that it read.
func (p *scenario) show(format string, args ...any) {
	p.rec.add(Event{Lane: Stage, Kind: Shows, Text: fmt.Sprintf(format, args...)})
}

// fault records a fault, which the checker attributes to target. It returns the ID of the fault.
func (p *scenario) fault(lane, target, kind, format string, args ...any) (id string) {
	id = fmt.Sprintf("fault%d", len(p.rec.Events()))
	p.rec.add(Event{Lane: lane, Kind: Fault, Text: fmt.Sprintf(format, args...)},
		history.Event{Kind: history.Fault, ID: id, Target: target, Text: kind})
	return id
}

// pass skips d: at the servers, where every lease becomes shorter by d, and on the clock of the
// record. No one waits for it, and a slow machine cannot spoil it. Keys without expiry stay.
func (p *scenario) pass(d time.Duration, why string, urls ...string) {
	var ended int
	if len(urls) == 0 {
		ended = p.engine.pass(p, d)
	} else {
		ended = p.shorten(d, urls...)
	}
	p.rec.skip(d)
	text := fmt.Sprintf("%s later: %s", spell(d), why)
	if ended > 0 {
		text += ". The lease expires at the server"
	}
	p.rec.add(Event{Lane: Stage, Kind: Time, Text: text})
}

// spell returns a duration in words.
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

// shorten shortens the leases at some servers by d and returns how many have expired.
func (p *scenario) shorten(d time.Duration, urls ...string) (ended int) {
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

func (p *scenario) unlimited(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endless[key]
}

// look shows the server's value of the lock's key.
func (p *scenario) look(key string) { p.show("%s", p.state(key)) }

// state is the server's value of the lock's key.
func (p *scenario) state(key string) string {
	v, left := p.server(p.url, "GET", key), p.server(p.url, "PTTL", key).Int
	text := fmt.Sprintf("at the server: GET %s → %s", p.plain(key), render(v))
	switch {
	case left == -1 || left > 0 && p.unlimited(key):
		text += ", and no expiry (PTTL → -1)"
	case left > 0:
		text += fmt.Sprintf(", for another %v", (time.Duration(left) * time.Millisecond).Round(100*time.Millisecond))
	}
	return text
}

// plain returns text without the prefix of the keys.
func (p *scenario) plain(text string) string { return strings.ReplaceAll(text, p.prefix, "") }

// render returns an answer roughly as redis-cli shows it.
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

// dial connects to a server.
func dial(url string) (redislock.Conn, error) { return rueidisconn.Dial(url) }
