package goredisconn_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

// The locks use the client of the application. Its data in the same Redis refuse a late write by the token.
func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{
		Addr:                  redisAddr(), // "localhost:6379"
		ContextTimeoutEnabled: true,
		MaxRetries:            -1, // a write whose answer was lost is not sent again
	})
	defer rdb.Close()
	store := redislock.New(goredisconn.New(rdb), nil)
	defer store.Close() // not rdb
	client, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

	stock := &fence.Redis{Key: "stock:42:fence", Keys: []string{"stock:42"},
		Eval: func(ctx context.Context, script string, keys, args []string) (any, error) {
			return rdb.Eval(ctx, script, keys, args).Result()
		}}
	var late uint64 // a token of a holder that is paused before its write
	for n := range 2 {
		lease, err := client.Mutex("stock/42").Lock(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		if n == 0 {
			late = lease.Token()
		} else {
			_, err := stock.Do(ctx, lease.Token(), []string{"SET", "stock:42", "9"})
			fmt.Println("the second holder writes:", err)
		}
		if err := lease.Release(); err != nil {
			fmt.Println(err)
			return
		}
	}
	_, err = stock.Do(ctx, late, []string{"SET", "stock:42", "10"})
	fmt.Println("the first one is too late:", errors.Is(err, fence.ErrStale))
	// Output:
	// the second holder writes: <nil>
	// the first one is too late: true
}
