package redisson

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// work is the work under a lock, in a Redis server that all contenders share and no lock uses; the
// Java program's Work does the same. Inside the lock a contender reads a counter and writes it back,
// and marks in a list when it comes in and goes out. The test reads the list: the order of its lines
// is the order of events, and needs no clock.
type work struct {
	judge          *redis.Client
	key, self      string
	rounds, writes int
}

func newWork(server, key, actor string) (*work, error) {
	w := &work{judge: redis.NewClient(&redis.Options{Addr: server}), key: key, self: fmt.Sprint(os.Getpid(), ".", actor)}
	return w, w.judge.Ping(context.Background()).Err()
}

func (w *work) close() { _ = w.judge.Close() }

func (w *work) critical(kind, token string) error {
	ctx := context.Background()
	if err := w.mark(ctx, "enter", kind, token); err != nil {
		return err
	}
	before, err := w.judge.Get(ctx, w.key+":counter").Int()
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
	switch kind {
	case "read":
		after, err := w.judge.Get(ctx, w.key+":counter").Int()
		if err == nil && after != before {
			err = errors.New("overlap: a writer changed the counter during a read")
		}
		if err != nil {
			return err
		}
	case "semaphore", "permit":
	default:
		if err := w.judge.Set(ctx, w.key+":counter", before+1, 0).Err(); err != nil {
			return err
		}
		w.writes++
	}
	w.rounds++
	return w.mark(ctx, "leave", kind, token)
}

func (w *work) mark(ctx context.Context, what, kind, token string) error {
	if token == "" {
		token = "-"
	}
	line := fmt.Sprintf("%s %s %s %d %s", what, kind, w.self, time.Now().UnixMicro(), token)
	return w.judge.RPush(ctx, w.key+":log", line).Err()
}

func (w *work) report() string { return fmt.Sprintf("rounds=%d writes=%d", w.rounds, w.writes) }
