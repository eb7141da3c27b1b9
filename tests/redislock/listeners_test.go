package redislock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestListenersKeepKeys: the check of a subscription leaves a key alone that has the channel's name.
func TestListenersKeepKeys(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	client := rawClient(t, server.Addr)
	do := func(words ...string) string {
		t.Helper()
		r, err := client.Do(t.Context(), client.B().Arbitrary(words...).Build()).ToAny()
		if err != nil {
			t.Fatal(words, err)
		}
		text, _ := r.(string)
		return text
	}
	for _, conn := range []redislock.Conn{dialRueidis(t, server.Addr),
		viaGoRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr}))} {
		for kind, set := range map[string][]string{
			"string": {"SET", "k", "v"}, "hash": {"HSET", "k", "f", "v"}, "list": {"RPUSH", "k", "v"},
			"set": {"SADD", "k", "v"}, "zset": {"ZADD", "k", "1", "v"}, "stream": {"XADD", "k", "*", "f", "v"},
		} {
			do(set...)
			before := do("DUMP", "k")
			v, err := conn.Run(within(t, soon), redislock.Listeners, []string{"k"}, []string{"NUMSUB"})
			if err != nil || v.Int != 0 {
				t.Errorf("%s: %+v, %v; want no listeners", kind, v, err)
			}
			if do("TYPE", "k") != kind || do("DUMP", "k") != before {
				t.Errorf("%s: the key has changed", kind)
			}
			do("DEL", "k")
		}
	}
}
