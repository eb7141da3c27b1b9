package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

var _ redislock.Tracker = (*conn)(nil)

// invalidate is where a server sends the keys that have changed, to a client of RESP2.
const invalidate = "__redis__:invalidate"

// Track implements redislock.Tracker, with a connection of its own that speaks RESP2 and is the
// target of its own tracking: go-redis gives no messages of RESP3 to its users. It does not track a
// Cluster.
func (c *conn) Track(ctx context.Context, prefix string, changed func(key string)) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	single, ok := c.client.(*redis.Client)
	if !ok {
		return fmt.Errorf("%w: keys are tracked at a single server only", driver.ErrInvalid)
	}
	opt := *single.Options()
	opt.MinIdleConns = 0
	opt.Protocol, opt.PushNotificationProcessor, opt.MaintNotificationsConfig = 2, nil, nil
	refused := make(chan error, 1)
	first := opt.OnConnect
	opt.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if first != nil {
			if err := first(ctx, cn); err != nil {
				return err
			}
		}
		id, err := cn.ClientID(ctx).Result()
		if err == nil {
			err = cn.Do(ctx, "client", "tracking", "on", "redirect", id, "bcast", "prefix", prefix).Err()
		}
		var reply redis.Error
		if errors.As(err, &reply) {
			select {
			case refused <- c.wrap(err):
			default:
			}
		}
		return err
	}
	client := redis.NewClient(&opt)
	defer client.Close()
	sub := client.Subscribe(ctx, invalidate)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	defer context.AfterFunc(c.ctx, func() { _ = sub.Close() })()
	for silent := false; ; {
		m, err := sub.ReceiveTimeout(ctx, silence)
		var timeout net.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &timeout) && timeout.Timeout() && !silent:
			silent = true
			if err := sub.Ping(ctx); err != nil {
				return c.wrap(err)
			}
			continue
		case err != nil: // or all keys were deleted, which the client cannot read
			select {
			case err = <-refused:
				return err
			default:
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
			}
		}
		silent = false
		switch m := m.(type) {
		case *redis.Subscription:
			changed("")
		case *redis.Message: // anybody may have sent it; those of the server have a list
			for _, key := range m.PayloadSlice {
				if key != "" {
					changed(key)
				}
			}
		}
	}
}
