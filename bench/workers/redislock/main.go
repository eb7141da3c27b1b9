// Command redislock is a worker for "holdfast verify --worker" with github.com/bsm/redislock, set up
// as in its README, with the watchdog that the README shows. It has no tokens and no queue; TTL asks
// the server whether a lease is valid.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/bench/workers/worker"
)

func main() {
	worker.Main(worker.Hello{Worker: "redislock", Wait: true}, func(url string, _ time.Duration) (worker.Locker, error) {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return locker{redislock.New(redis.NewClient(o))}, nil
	})
}

type locker struct{ *redislock.Client }

func (l locker) Lock(id int64, name string, ttl, wait time.Duration) (worker.Lease, error) {
	ctx, cancel := worker.Waiting(wait)
	defer cancel()
	var o *redislock.Options
	if wait > 0 {
		o = &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	}
	lock, err := l.Obtain(ctx, name, ttl, o)
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return nil, nil
	case err != nil:
		return nil, err
	}
	work, cancel := context.WithCancel(context.Background())
	go watchdog(work, lock, ttl, func() {
		cancel()
		worker.Lost(id)
	})
	return &lease{lock, work, cancel}, nil
}

// watchdog is that of the README.
func watchdog(work context.Context, lock *redislock.Lock, ttl time.Duration, lost func()) {
	t := time.NewTicker(ttl / 3)
	defer t.Stop()
	for {
		select {
		case <-work.Done():
			return
		case <-t.C:
			if err := lock.Refresh(work, ttl, nil); err != nil {
				if work.Err() == nil {
					lost()
				}
				return
			}
		}
	}
}

type lease struct {
	*redislock.Lock
	work   context.Context
	cancel context.CancelFunc
}

func (*lease) Token() uint64 { return 0 }

func (l *lease) Held() (bool, error) {
	if l.work.Err() != nil {
		return false, nil
	}
	left, err := l.TTL(context.Background())
	return left > 0, err
}

func (l *lease) Unlock() (bool, error) {
	l.cancel()
	err := l.Release(context.Background())
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return false, nil
	}
	return err == nil, err
}
