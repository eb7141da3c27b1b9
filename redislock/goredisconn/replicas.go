package goredisconn

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// RunWait implements redislock.Conn. A redis.Conn sends everything over a single connection; a
// pipeline alone does not promise that. Clients without redis.Conn (redis.Ring) are refused with
// ErrInvalid.
func (c *conn) RunWait(ctx context.Context, calls []redislock.Call, replicas int, timeout time.Duration) (
	[]redislock.Result, int, error) {
	c.doubt.Used()
	all := make([]redislock.Result, len(calls))
	fail := func(err error) ([]redislock.Result, int, error) {
		for i := range all {
			all[i] = redislock.Result{Err: err}
		}
		return all, 0, err
	}
	if err := c.ready(ctx); err != nil {
		return fail(err)
	}
	if len(calls) == 0 {
		return all, 0, nil
	}
	client, err := c.node(ctx, calls[0].Keys)
	if err != nil {
		return fail(err)
	}
	const slack = time.Second // for the answer, beyond the wait for replicas
	limit := client.Options().ReadTimeout
	if limit > 0 && limit < timeout+slack {
		limit = timeout + max(limit, slack)
	}
	// WithTimeout copies the options. Without it all Conns share those of the client, and each
	// writes to them when it connects, under its own lock (go-redis 9.23).
	client = client.WithTimeout(limit)
	over := c.begin(ctx)
	cmds := make([]once, len(calls))
	one := client.Conn()
	wait := replicated(ctx, one, calls, cmds, replicas, timeout)
	_ = one.Close() // it goes back to the pool
	over()
	for i, cmd := range cmds {
		all[i] = c.result(cmd)
	}
	if c.cluster != nil && (wait.Err() != nil || slices.ContainsFunc(cmds, func(c once) bool { return c.Err() != nil })) {
		c.cluster.ReloadState(ctx) // the slot has moved, or its server is gone; a Conn follows no redirection
	}
	n, err := wait.Int()
	if err != nil {
		return all, 0, c.wrap(err)
	}
	return all, n, nil
}

// replicated sends calls and WAIT in one pipeline. It repeats what the server does not know by its
// hash. cmds receives the calls' answers.
func replicated(ctx context.Context, one *redis.Conn, calls []redislock.Call, cmds []once, replicas int,
	timeout time.Duration) (wait once) {
	send := func(which []int, build func(redislock.Call) []any) (unknown []int) {
		pipe := one.Pipeline()
		for _, i := range which {
			cmds[i] = command(ctx, build(calls[i]))
			_ = pipe.Process(ctx, cmds[i]) // it only queues
		}
		wait = command(ctx, []any{"wait", replicas, timeout.Milliseconds()})
		_ = pipe.Process(ctx, wait)
		_, _ = pipe.Exec(ctx) // each cmd has its error
		for _, i := range which {
			if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
				unknown = append(unknown, i)
			}
		}
		return unknown
	}
	which := make([]int, len(calls))
	for i := range which {
		which[i] = i
	}
	if which = send(which, func(call redislock.Call) []any {
		return words(call.Script, call.Keys, call.Args)
	}); len(which) > 0 {
		send(which, func(call redislock.Call) []any {
			w := words(call.Script, call.Keys, call.Args)
			w[0], w[1] = "eval", call.Script.Text
			return w
		})
	}
	return wait
}

// node returns the client of the server that has keys.
func (c *conn) node(ctx context.Context, keys []string) (*redis.Client, error) {
	switch client := c.client.(type) {
	case *redis.Client: // of a single server, or of the primary behind sentinels
		return client, nil
	case *redis.ClusterClient:
		if len(keys) == 0 {
			break
		}
		node, err := client.MasterForKey(ctx, keys[0])
		if err != nil {
			return nil, c.wrap(err)
		}
		return node, nil
	}
	return nil, fmt.Errorf("%w: a %T cannot wait for replicas; redis.Client and redis.ClusterClient can",
		driver.ErrInvalid, c.client)
}
