package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// redisEngine is Redis. In commands, the word R and words that begin with "R:" are keys of the run.
// The command "script NAME KEY ARGUMENT…" runs one of scripts.
type redisEngine struct{}

// scripts are those of the rows that are data, by name. The timeline shows the name.
var scripts = map[string]*redislock.Script{
	"compare-and-delete": compareAndDelete,
}

func (redisEngine) session(c *client) (session, error) {
	c.conn = c.connect(c.url)
	return redisSession{c}, nil
}

func (redisEngine) pass(p *scenario, d time.Duration) (ended int) { return p.shorten(d, p.url) }

func (redisEngine) look(p *scenario) string { return p.state(p.key("R")) }

func (redisEngine) backend(p *scenario) (driver.Backend, network) {
	l := p.connect(p.url)
	return redislock.New(l, &redislock.Config{Prefix: p.prefix}), l
}

// redisSession is a connection to Redis.
type redisSession struct{ c *client }

func (s redisSession) set(mode linkMode) { s.c.conn.set(mode) }

func (s redisSession) blocked(context.Context) error {
	return errors.New("no command of Redis that the lab uses keeps a client waiting")
}

func (s redisSession) send(ctx context.Context, command string) (string, error) {
	words := strings.Fields(command)
	for i, w := range words {
		if w == "R" || strings.HasPrefix(w, "R:") {
			words[i] = s.c.key(w)
		}
	}
	var v redislock.Value
	var err error
	if words[0] == "script" {
		text, ok := scripts[words[1]]
		if !ok {
			return "", fmt.Errorf("%w: there is no script %q", driver.ErrInvalid, words[1])
		}
		v, err = s.c.conn.Run(ctx, text, words[2:3], words[3:])
		s.c.mark(words[2], false) // the scripts set an expiry, or remove the key
	} else {
		v, err = s.c.send(words)
	}
	if errors.Is(err, driver.ErrRefused) {
		return "error: " + err.Error(), nil
	}
	return render(v), err
}
