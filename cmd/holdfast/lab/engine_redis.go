package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// redisEngine is Redis. In commands, the word R and words that begin with "R:" are keys of the run.
// A command that begins with "script: " is one of scripts.
type redisEngine struct{}

// scripts are those of the rows that are data, as the timeline shows them. The first group is the
// key, the others are arguments.
var scripts = []struct {
	form func() *regexp.Regexp
	text *redislock.Script
}{
	{form(`^script: if GET (\S+) = (\S+), DEL \S+$`), compareAndDelete},
	{form(`^script: if GET (\S+) = (\S+), PEXPIRE \S+ (\d+)$`), compareAndExpire},
	{form(`^script: SETNX (\S+) (\S+), EXPIRE \S+ (\d+)$`), setnxThenExpire},
}

func (redisEngine) session(c *client) (session, error) {
	c.conn = c.connect(c.url)
	return redisSession{c}, nil
}

func (redisEngine) pass(p *scenario, d time.Duration) (ended int) { return p.shorten(d, p.url) }

func (redisEngine) look(p *scenario) string { return p.state(p.key("R")) }

func (redisEngine) backend(p *scenario, _ time.Duration) (driver.Backend, network) {
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
	var v redislock.Value
	var err error
	if strings.HasPrefix(command, "script: ") {
		v, err = s.script(ctx, command)
	} else {
		words := strings.Fields(command)
		for i, w := range words {
			words[i] = s.key(w)
		}
		v, err = s.c.send(words)
	}
	if errors.Is(err, driver.ErrRefused) {
		return "error: " + err.Error(), nil
	}
	return render(v), err
}

// key returns a word of a command: a key of the run if it is R, or begins with "R:".
func (s redisSession) key(word string) string {
	if word == "R" || strings.HasPrefix(word, "R:") {
		return s.c.key(word)
	}
	return word
}

func (s redisSession) script(ctx context.Context, command string) (redislock.Value, error) {
	for _, x := range scripts {
		if m := x.form().FindStringSubmatch(command); m != nil {
			key := s.key(m[1])
			s.c.mark(key, false) // the scripts set an expiry, or remove the key
			return s.c.conn.Run(ctx, x.text, []string{key}, m[2:])
		}
	}
	return redislock.Value{}, fmt.Errorf("%w: there is no %q", driver.ErrInvalid, command)
}
