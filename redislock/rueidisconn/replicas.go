package rueidisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// RunWait implements redislock.Conn. It takes a connection from the pool for blocking commands,
// which no other request uses meanwhile (see Dedicate). On the shared connection WAIT would delay
// all later requests. If the pool has to open a connection, the client's dial limit bounds that,
// besides ctx.
func (c *conn) RunWait(ctx context.Context, calls []redislock.Call, replicas int, timeout time.Duration) (
	results []redislock.Result, acked int, err error) {
	c.doubt.Used()
	results = make([]redislock.Result, len(calls))
	if err = c.ready(ctx); err == nil {
		err = c.connections.begin(ctx)
	}
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results, 0, err
	}
	defer c.connections.end()
	c.waits.Store(true)
	// Without a limit the client would wait for a blocking command for ever.
	ctx, cancel := context.WithTimeout(ctx, timeout+c.ioTimeout)
	defer cancel()
	if c.pool != nil {
		select {
		case c.pool <- struct{}{}:
			defer func() { <-c.pool }()
		case <-ctx.Done(): // nothing was sent
			err := fmt.Errorf("%w: all connections that wait for replicas are in use (pool-size): %w",
				driver.ErrUnavailable, ctx.Err())
			for i := range results {
				results[i].Err = err
			}
			return results, 0, err
		}
	}
	client, release := c.client.Dedicate()
	defer release()
	todo := make([]int, len(calls))
	for i := range todo {
		todo[i] = i
	}
	build := c.evalsha
	for range 2 { // by hash, and what the server does not know by its text
		cmds := make(rueidis.Commands, 0, len(todo)+1)
		for _, i := range todo {
			cmds = append(cmds, build(calls[i].Script, calls[i].Keys, calls[i].Args))
		}
		cmds = append(cmds, client.B().Wait().Numreplicas(int64(replicas)).Timeout(timeout.Milliseconds()).Build())
		answers := client.DoMulti(ctx, cmds...)
		n, failed := answers[len(todo)].AsInt64()
		if acked, err = int(n), nil; failed != nil {
			err = c.wrap(failed)
		}
		var unknown []int
		for j, i := range todo {
			if missing(answers[j]) {
				unknown = append(unknown, i)
			}
			results[i].Value, results[i].Err = c.value(answers[j])
		}
		if todo, build = unknown, c.eval; len(todo) == 0 {
			break
		}
	}
	if c.Cluster() && len(calls) > 0 && (err != nil || misled(results)) {
		// The client itself follows redirections and replaces lost servers; a dedicated connection
		// does not.
		_ = c.client.Do(ctx, c.client.B().Exists().Key(calls[0].Keys[0]).Build())
	}
	return results, acked, err
}

// misled reports whether the server was not the one with the keys.
func misled(results []redislock.Result) bool {
	for _, r := range results {
		if r.Err != nil && (strings.Contains(r.Err.Error(), "MOVED ") || errors.Is(r.Err, driver.ErrUnavailable) ||
			errors.Is(r.Err, driver.ErrUncertain)) {
			return true
		}
	}
	return false
}
