package rueidisconn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

var (
	_ redislock.Tracker        = (*conn)(nil)
	_ redislock.ManySubscriber = (*conn)(nil)
)

// trackCheck is how often Track asks whether its connections live and all servers are tracked.
const trackCheck = 2 * time.Second

// Track implements redislock.Tracker, with a connection to each server. In a Cluster these are the
// replicas, too: one of them may become a primary.
func (c *conn) Track(ctx context.Context, prefix string, changed func(key string)) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	nodes := map[string]rueidis.Client{"": c.client}
	if c.Cluster() {
		nodes = c.client.Nodes()
	}
	began, ended := make(chan struct{}, len(nodes)), make(chan error, len(nodes))
	for _, node := range nodes {
		go func() { ended <- c.trackAt(ctx, node, prefix, changed, func() { began <- struct{}{} }) }()
	}
	check := time.NewTicker(trackCheck)
	defer check.Stop()
	var err error
	missing, left := len(nodes), len(nodes)
	for err == nil {
		select {
		case <-began:
			if missing--; missing == 0 {
				changed("")
			}
		case err = <-ended:
			left--
		case <-check.C:
			if c.Cluster() && !slices.Equal(addresses(c.client.Nodes()), addresses(nodes)) {
				err = fmt.Errorf("%w: the servers of the Cluster have changed", driver.ErrUnavailable)
			}
		}
	}
	cancel()
	for range left {
		<-ended
	}
	return err
}

func addresses(nodes map[string]rueidis.Client) []string { return slices.Sorted(maps.Keys(nodes)) }

// trackAt tracks the keys of one server until ctx or the connection ends, and returns why.
func (c *conn) trackAt(ctx context.Context, node rueidis.Client, prefix string, changed func(string),
	began func()) error {
	client, _ := node.Dedicate()
	defer client.Close() // not returned to the pool: the server would track for its next user
	var tracked atomic.Bool
	broken := client.SetOnInvalidations(func(keys []rueidis.RedisMessage) {
		if keys == nil && tracked.Load() { // all keys were deleted, or the connection was lost
			changed("")
		}
		for i := range keys {
			if key, err := keys[i].ToString(); err == nil && key != "" {
				changed(key)
			}
		}
	})
	ask := func(words ...string) rueidis.RedisResult {
		ctx, cancel := context.WithTimeout(ctx, c.ioTimeout)
		defer cancel()
		return client.Do(ctx, client.B().Arbitrary(words...).Build())
	}
	hello, err := ask("HELLO").AsMap()
	if err != nil {
		return c.wrap(err)
	}
	proto := hello["proto"]
	if n, err := proto.AsInt64(); err != nil || n < 3 { // the server would send the keys elsewhere
		return fmt.Errorf("%w: tracking with this client needs RESP3", driver.ErrInvalid)
	}
	if err := ask("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix).Error(); err != nil {
		return c.wrap(err)
	}
	tracked.Store(true)
	began()
	check := time.NewTicker(trackCheck)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-broken:
			return fmt.Errorf("%w: the connection was lost: %w", driver.ErrUnavailable, err)
		case <-check.C:
			if err := ask("PING").NonRedisError(); err != nil { // an error reply is an answer
				return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
			}
		}
	}
}
