package redislock_test

import (
	"context"
	"strings"

	"github.com/holdfast-lock/holdfast/redislock"
)

// sided is a Conn that may claim to lead to a Cluster, and may refuse to subscribe.
type sided struct {
	redislock.Conn
	cluster, mute bool
}

func (c *sided) Cluster() bool { return c.cluster }

func (c *sided) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	if c.mute || strings.HasPrefix(channel, "redisson_") { // each is a connection, and there are thousands of names
		return func() {}, nil
	}
	return c.Conn.Subscribe(ctx, channel, message, again)
}

// RunAll leaves out signs of life: a script that runs beside those of a scene would take their steps.
func (c *sided) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	if len(calls) > 0 && strings.Contains(calls[0].Script.Text, "-- Keeps waiters in the other library's queue.") {
		return make([]redislock.Result, len(calls))
	}
	return c.Conn.RunAll(ctx, calls)
}

func (c *sided) SubscribeShard(ctx context.Context, channel string, message func(string), again func()) (
	func(), error) {
	if c.mute {
		return func() {}, nil
	}
	return c.Conn.SubscribeShard(ctx, channel, message, again)
}
