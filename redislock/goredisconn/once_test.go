package goredisconn_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

var increment = &redislock.Script{
	Text: "return redis.call('INCR', KEYS[1])", SHA1: "61636018f4e6b5817b89791bbed242f93fa089e3",
}

// TestOnce: a client with default options of go-redis repeats commands without an answer on another
// connection. A script that arrives late runs once.
func TestOnce(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := testenv.Redis(t)
		proxy := testenv.Proxy(t, server.Addr)
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr, ReadTimeout: 300 * time.Millisecond})
		runsOnce(t, client, proxy)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
		proxies := testenv.Proxies(t, c.Addrs())
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: c.Addrs(), Dialer: proxies.Dial, ReadTimeout: 300 * time.Millisecond,
		})
		all := make([]*testenv.TCPProxy, len(c.Servers))
		for i, addr := range c.Addrs() {
			all[i] = proxies.To(addr)
		}
		runsOnce(t, client, all...)
	})
}

func runsOnce(t *testing.T, client redis.UniversalClient, proxies ...*testenv.TCPProxy) {
	conn := goredisconn.New(client)
	t.Cleanup(func() {
		_ = conn.Close()
		_ = client.Close()
	})
	ctx := within(t, time.Minute)
	for how, run := range map[string]func(keys []string) error{
		"Run": func(keys []string) error {
			_, err := conn.Run(ctx, increment, keys, nil)
			return err
		},
		"RunAll": func(keys []string) error {
			return conn.RunAll(ctx, []redislock.Call{{Script: increment, Keys: keys}})[0].Err
		},
		"RunWait": func(keys []string) error {
			_, _, err := conn.RunWait(ctx, []redislock.Call{{Script: increment, Keys: keys}}, 0, time.Millisecond)
			return err
		},
	} {
		// The server knows the script, and the client has a connection, when this has succeeded.
		for err := run([]string{"{" + how + "}ready"}); err != nil; err = run([]string{"{" + how + "}ready"}) {
			if ctx.Err() != nil {
				t.Fatal(how, err)
			}
		}
		keys := []string{how}
		deliver := testenv.HoldAll(proxies...)
		err := run(keys)
		deliver()
		if !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("%s, not answered in time: %v; want ErrUncertain", how, err)
		}
		for n := 0; n == 0 && ctx.Err() == nil; {
			n, _ = client.Get(ctx, how).Int() // 0 after an error
		}
		time.Sleep(100 * time.Millisecond)
		n, err := client.Get(ctx, how).Int()
		for err != nil && ctx.Err() == nil {
			n, err = client.Get(ctx, how).Int()
		}
		if n != 1 || err != nil {
			t.Errorf("%s: the script ran %d times for one call (%v)", how, n, err)
		}
	}
}
