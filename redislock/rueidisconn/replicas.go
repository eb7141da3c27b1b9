package rueidisconn

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// RunWait is redislock.Conn's. A connection of the pool for blocking commands is ours
// alone meanwhile, as rueidis says of Dedicate. The one that all others share would not do:
// WAIT holds up whatever comes after it. If the pool has to open a connection, that is
// bounded by the client's limit for dialling, beside ctx.
func (c *conn) RunWait(ctx context.Context, calls []redislock.Call, replicas int, timeout time.Duration) (results []redislock.Result, acked int, err error) {
	c.doubt.Used()
	results = make([]redislock.Result, len(calls))
	if err = c.ready(ctx); err == nil {
		err = c.lines.begin(ctx)
	}
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results, 0, err
	}
	defer c.lines.end()
	c.waits.Store(true)
	// A command that blocks is waited for without a limit, if ctx has none.
	ctx, cancel := context.WithTimeout(ctx, timeout+ioTimeout)
	defer cancel()
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
		// The client itself follows redirections and looks for servers that are gone; what is dedicated does not.
		_ = c.client.Do(ctx, c.client.B().Exists().Key(calls[0].Keys[0]).Build())
	}
	return results, acked, err
}

// misled reports whether the server asked was not the one that has the keys.
func misled(results []redislock.Result) bool {
	for _, r := range results {
		if r.Err != nil && (strings.Contains(r.Err.Error(), "MOVED ") || errors.Is(r.Err, driver.ErrUnavailable) || errors.Is(r.Err, driver.ErrUncertain)) {
			return true
		}
	}
	return false
}
