package fence_test

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// redisEvals returns the Evals of both client libraries for a server, and a client of it.
func redisEvals(t *testing.T, s *testenv.RedisServer) (*redis.Client, map[string]fence.Eval) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true,
		DisableCache: true})
	must(t, err)
	t.Cleanup(other.Close)
	return client, map[string]fence.Eval{
		"go-redis": func(ctx context.Context, script string, keys, args []string) (any, error) {
			return client.Eval(ctx, script, keys, args).Result()
		},
		"rueidis": func(ctx context.Context, script string, keys, args []string) (any, error) {
			eval := other.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...)
			return other.Do(ctx, eval.Build()).ToAny()
		},
	}
}

func TestRedis(t *testing.T) {
	s := testenv.Redis(t)
	client, evals := redisEvals(t, s)
	for name, eval := range evals {
		t.Run(name, func(t *testing.T) {
			must(t, client.FlushAll(testContext(t)).Err())
			testRedis(t, client, eval)
		})
	}
}

func testRedis(t *testing.T, client *redis.Client, eval fence.Eval) {
	ctx := testContext(t)
	guard := func(resource string) *fence.Redis {
		return &fence.Redis{Eval: eval, Key: resource + ":fence", Keys: []string{resource, resource + ":2"}}
	}
	get := func(key string) []string { return []string{"GET", key} }
	set := func(key, value string) []string { return []string{"SET", key, value} }
	value := func(key string) string { return client.Get(ctx, key).Val() }

	// A frozen holder's late write, after a newer holder's read: refused. That read alone has raised
	// the token. Without the guard, the write is accepted, and the newer holder overwrites it.
	g := guard("stock")
	_, err := g.Do(ctx, 1, set("stock", "10"))
	must(t, err)
	_, err = g.Do(ctx, 1, get("stock"))
	must(t, err)
	answers, err := g.Do(ctx, 2, get("stock"))
	if err != nil || len(answers) != 1 || answers[0] != "10" {
		t.Fatalf("the newer holder's read: %v, %v", answers, err)
	}
	_, err = g.Do(ctx, 1, set("stock", "9"))
	wantErr(t, err, fence.ErrStale)
	if v := value("stock"); v != "10" {
		t.Errorf("after a refused write the value is %q", v)
	}
	must(t, client.Set(ctx, "stock", "9", 0).Err())
	if v := value("stock"); v != "9" {
		t.Errorf("without the guard the late write was not accepted: %q", v)
	}

	// All kinds of answers, several keys, an equal token.
	g = guard("many")
	answers, err = g.Do(ctx, 3, get("many"), set("many", "a b\r\n\x00\xff"), get("many"),
		[]string{"INCRBY", "many:2", "7"}, []string{"MGET", "many", "nothing", "many:2"})
	must(t, err)
	list, _ := answers[4].([]any)
	if len(answers) != 5 || answers[0] != nil || answers[1] != "OK" || answers[2] != "a b\r\n\x00\xff" ||
		answers[3] != int64(7) || len(list) != 3 || list[1] != nil || list[2] != "7" {
		t.Errorf("answers: %#v", answers)
	}
	if answers, err := g.Do(ctx, 3); err != nil || len(answers) != 0 {
		t.Errorf("no commands: %v, %v", answers, err)
	}

	// Tokens are compared as numbers, and exactly beyond 2^53.
	ordered := []uint64{9, 10, 99, 100, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1763735000123456789, math.MaxInt64 - 1,
		math.MaxInt64}
	g = guard("order")
	for i, token := range ordered {
		_, err := g.Do(ctx, token, set("order", strconv.FormatUint(token, 10)))
		must(t, err)
		for _, smaller := range ordered[:i] {
			_, err := g.Do(ctx, smaller, set("order", "stale"))
			wantErr(t, err, fence.ErrStale)
		}
	}
	if v := value("order:fence"); v != strconv.FormatUint(math.MaxInt64, 10) || value("order") != v {
		t.Errorf("the largest token is %q, the value %q", v, value("order"))
	}

	// A command that fails: those before it have run, the others not, and the token counts.
	g = guard("fails")
	if _, err := g.Do(ctx, 5, set("fails", "1"), []string{"LPUSH", "fails", "x"}, set("fails:2", "1")); err == nil ||
		!strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a command of another type: %v", err)
	}
	if value("fails") != "1" || value("fails:2") != "" || value("fails:fence") != "5" {
		t.Errorf("after a failed command: %q, %q, %q", value("fails"), value("fails:2"), value("fails:fence"))
	}

	// What is not a token is not overwritten.
	for _, damaged := range []string{"x", "", "07", "-1", "1.5"} {
		must(t, client.Set(ctx, "damaged:fence", damaged, 0).Err())
		_, err := guard("damaged").Do(ctx, 5, set("damaged", "1"))
		if err == nil || !strings.Contains(err.Error(), "no token") {
			t.Errorf("the token %q: %v", damaged, err)
		}
	}
	if v := value("damaged"); v != "" {
		t.Errorf("a command ran under a damaged token: %q", v)
	}

	// A server that refuses writes does nothing, also if it has seen no token.
	must(t, client.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	_, err = guard("refused").Do(ctx, 5, set("refused", "1"))
	must(t, client.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	if err == nil || !strings.Contains(err.Error(), "NOREPLICAS") || value("refused") != "" ||
		value("refused:fence") != "" {
		t.Errorf("a server that refuses writes: %v", err)
	}

	for _, bad := range []func() error{
		func() error { _, err := guard("x").Do(ctx, 0); return err },
		func() error { _, err := guard("x").Do(ctx, math.MaxInt64+1); return err },
		func() error { _, err := guard("x").Do(ctx, 1, nil); return err },
		func() error { _, err := (&fence.Redis{Eval: eval}).Do(ctx, 1); return err },
		func() error {
			_, err := (&fence.Redis{Eval: eval, Key: "x", Keys: []string{"x"}}).Do(ctx, 1)
			return err
		},
		func() error { _, err := (*fence.Redis)(nil).Do(ctx, 1); return err },
	} {
		wantErr(t, bad(), fence.ErrInvalid)
	}
}

// In a Cluster the keys need one hash tag. With others nothing is done.
func TestRedisCluster(t *testing.T) {
	s := testenv.Redis(t, "--cluster-enabled", "yes")
	client, evals := redisEvals(t, s)
	ctx := testContext(t)
	must(t, client.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	for client.Get(ctx, "x").Err() != redis.Nil { // it takes its slots over
		must(t, ctx.Err())
		time.Sleep(5 * time.Millisecond) // no event reports it
	}
	eval := evals["go-redis"]
	tagged := &fence.Redis{Eval: eval, Key: "stock:{42}:fence", Keys: []string{"stock:{42}:count", "stock:{42}:log"}}
	_, err := tagged.Do(ctx, 2, []string{"INCR", "stock:{42}:count"}, []string{"RPUSH", "stock:{42}:log", "sold"})
	must(t, err)
	_, err = tagged.Do(ctx, 1, []string{"INCR", "stock:{42}:count"})
	wantErr(t, err, fence.ErrStale)
	apart := &fence.Redis{Eval: eval, Key: "stock:42:fence", Keys: []string{"stock:42:count"}}
	if _, err := apart.Do(ctx, 2, []string{"INCR", "stock:42:count"}); err == nil ||
		!strings.Contains(err.Error(), "CROSSSLOT") {
		t.Errorf("keys of two slots: %v", err)
	}
}
