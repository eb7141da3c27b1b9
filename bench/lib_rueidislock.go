package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis/rueidislock"
)

// The README's configuration for one server, except TryNextAfter. With the default of 20 ms a
// waiter with slower answers can wait for ever on a free name.
var (
	rueidislockDefault = library{name: "rueidislock", waits: true,
		open: openRueidislock(func(o *rueidislock.LockerOption) {
			o.NoLoopTracking, o.TryNextAfter = true, time.Second
		})}
	// Without client-side caching TryNextAfter is the polling interval.
	rueidislockNoCSC = library{name: "rueidislock-nocsc", waits: true,
		open: openRueidislock(func(o *rueidislock.LockerOption) { o.ClientOption.DisableCache = true })}
)

func openRueidislock(set func(*rueidislock.LockerOption)) func(context.Context, site) (client, error) {
	return func(_ context.Context, at site) (client, error) {
		option := rueidislock.LockerOption{ClientOption: at.wire.rueidisOption(at.addr), KeyMajority: 1}
		set(&option)
		if at.ttl > 0 {
			option.KeyValidity, option.ExtendInterval = at.ttl, at.ttl/3
		}
		l, err := rueidislock.NewLocker(option)
		if err != nil {
			return nil, err
		}
		return &rueidislockClient{l: l}, nil
	}
}

type rueidislockClient struct {
	l       rueidislock.Locker
	mu      sync.Mutex
	cancels []context.CancelFunc // of the names that hold took
}

func (c *rueidislockClient) contender(name string) contender {
	return &rueidislockContender{l: c.l, name: name}
}

func (c *rueidislockClient) hold(ctx context.Context, name string) error {
	// The lock's context is a child of the context of the call.
	_, cancel, err := c.l.WithContext(context.WithoutCancel(ctx), name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.cancels = append(c.cancels, cancel)
	c.mu.Unlock()
	return nil
}

func (c *rueidislockClient) close() error {
	for _, cancel := range c.cancels {
		cancel()
	}
	c.l.Close()
	return nil
}

type rueidislockContender struct {
	l       rueidislock.Locker
	name    string
	release context.CancelFunc
}

func (k *rueidislockContender) lock(ctx context.Context) (err error) {
	_, k.release, err = k.l.WithContext(ctx, k.name)
	return err
}

// unlock cannot fail: the library reports no errors.
func (k *rueidislockContender) unlock() error { k.release(); return nil }
