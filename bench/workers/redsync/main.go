// Command redsync is a worker for "holdfast verify --worker" with github.com/go-redsync/redsync, set
// up as in its README. redsync has no tokens, no queue, and no renewal of its own; Until says how
// long a lease is valid.
package main

import (
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/bench/workers/worker"
)

func main() {
	worker.Main(worker.Hello{Worker: "redsync", Wait: true}, func(url string, _ time.Duration) (worker.Locker, error) {
		o, err := goredislib.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return locker{redsync.New(goredis.NewPool(goredislib.NewClient(o)))}, nil
	})
}

type locker struct{ *redsync.Redsync }

func (l locker) Lock(_ int64, name string, ttl, wait time.Duration) (worker.Lease, error) {
	ctx, cancel := worker.Waiting(wait)
	defer cancel()
	m := l.NewMutex(name, redsync.WithExpiry(ttl))
	err := error(nil)
	if wait == 0 {
		err = m.TryLockContext(ctx)
	} else {
		err = m.LockContext(ctx)
	}
	var taken *redsync.ErrTaken
	switch {
	case errors.As(err, &taken):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return lease{m}, nil
}

type lease struct{ *redsync.Mutex }

func (lease) Token() uint64 { return 0 }

func (l lease) Held() (bool, error) { return time.Now().Before(l.Until()), nil }

func (l lease) Unlock() (bool, error) {
	ok, err := l.Mutex.Unlock()
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) {
		return false, nil
	}
	return ok, err
}
