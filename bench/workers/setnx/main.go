// Command setnx is a worker for "holdfast verify --worker" with the lock that many programs write by
// hand: SET NX PX, and DEL. There is nothing to ask whether a lease is valid, and no renewal.
package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/bench/workers/worker"
)

func main() {
	hello := worker.Hello{Worker: "SET NX and DEL", Wait: true}
	worker.Main(hello, func(url string, _ time.Duration) (worker.Locker, error) {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return locker{redis.NewClient(o)}, nil
	})
}

type locker struct{ *redis.Client }

func (l locker) Lock(_ int64, name string, ttl, wait time.Duration) (worker.Lease, error) {
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		ok, err := l.SetNX(context.Background(), name, "locked", ttl).Result()
		switch {
		case err != nil:
			return nil, err
		case ok:
			return lease{l.Client, name}, nil
		case !time.Now().Before(end):
			return nil, nil
		}
	}
}

type lease struct {
	c    *redis.Client
	name string
}

func (lease) Token() uint64 { return 0 }

func (lease) Held() (bool, error) { return true, nil }

func (l lease) Unlock() (bool, error) {
	n, err := l.c.Del(context.Background(), l.name).Result()
	return n == 1, err
}
