package goredisconn_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

// guarded writes a number under a token, and refuses a token that is smaller than one it has seen. Lua's
// numbers are exact up to 2^53, and Redis's tokens, which are microseconds, stay below that until 2255.
var guarded = redis.NewScript(`
	if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then return 0 end
	redis.call('HSET', KEYS[1], 'token', ARGV[1], 'n', ARGV[2])
	return 1`)

// The locks use the client of the application. Its data in the same Redis refuse a late write by the token.
func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr(), ContextTimeoutEnabled: true}) // "localhost:6379"
	defer rdb.Close()
	store := redislock.New(goredisconn.New(rdb), nil)
	defer store.Close() // not rdb
	client, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

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
			written, err := guarded.Run(ctx, rdb, []string{"stock:42"}, lease.Token(), 9).Bool()
			fmt.Println("the second holder writes:", written, err)
		}
		if err := lease.Release(); err != nil {
			fmt.Println(err)
			return
		}
	}
	written, err := guarded.Run(ctx, rdb, []string{"stock:42"}, late, 9).Bool()
	fmt.Println("the first one, late:", written, err)
	// Output:
	// the second holder writes: true <nil>
	// the first one, late: false <nil>
}
