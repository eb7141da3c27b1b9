package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
)

var (
	redislockLinear = library{name: "redislock", waits: true, open: openRedislock(func() redislock.RetryStrategy {
		return redislock.LinearBackoff(100 * time.Millisecond)
	})}
	redislock1ms = library{name: "redislock-1ms", waits: true, open: openRedislock(func() redislock.RetryStrategy {
		return redislock.LinearBackoff(time.Millisecond)
	})}
	redislockExp = library{name: "redislock-exp", waits: true, open: openRedislock(func() redislock.RetryStrategy {
		return redislock.ExponentialBackoff(0, 512*time.Millisecond)
	})}
)

func openRedislock(retry func() redislock.RetryStrategy) func(context.Context, site) (client, error) {
	return func(_ context.Context, at site) (client, error) {
		c := at.wire.goredisClient(at.addr)
		life, cancel := context.WithCancel(context.Background())
		ttl := cmp.Or(at.ttl, rawTTL)
		return &redislockClient{ttl: ttl, rdb: c, c: redislock.New(c), retry: retry, life: life, cancel: cancel}, nil
	}
}

type redislockClient struct {
	ttl    time.Duration
	rdb    *goredis.Client
	c      *redislock.Client
	retry  func() redislock.RetryStrategy
	life   context.Context
	cancel context.CancelFunc
	dogs   sync.WaitGroup
	mu     sync.Mutex
	failed error
}

func (c *redislockClient) contender(name string) contender {
	return &redislockContender{c: c, name: name}
}

// hold starts the watchdog of redislock's README: a goroutine and a ticker for each lock.
func (c *redislockClient) hold(ctx context.Context, name string) error {
	l, err := c.c.Obtain(ctx, name, c.ttl, nil)
	if err != nil {
		return err
	}
	c.dogs.Go(func() {
		t := time.NewTicker(c.ttl / 3)
		defer t.Stop()
		for {
			select {
			case <-c.life.Done():
				return
			case <-t.C:
				if err := l.Refresh(c.life, c.ttl, nil); err != nil {
					if c.life.Err() == nil {
						c.mu.Lock()
						c.failed = err
						c.mu.Unlock()
					}
					return
				}
			}
		}
	})
	return nil
}

func (c *redislockClient) close() error {
	c.cancel()
	c.dogs.Wait()
	return errors.Join(c.failed, c.rdb.Close())
}

type redislockContender struct {
	c    *redislockClient
	name string
	l    *redislock.Lock
}

func (k *redislockContender) lock(ctx context.Context) (err error) {
	k.l, err = k.c.c.Obtain(ctx, k.name, k.c.ttl, &redislock.Options{RetryStrategy: k.c.retry()})
	if errors.Is(err, redislock.ErrNotObtained) {
		return errGaveUp
	}
	return err
}

func (k *redislockContender) unlock() error { return k.l.Release(context.Background()) }
