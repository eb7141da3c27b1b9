package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestDemoted: a waiter's subscription stays at a server that has become a replica. As soon as an
// exchange shows the new primary, the waiter subscribes there, and then gets the lock.
func TestDemoted(t *testing.T) {
	t.Parallel()
	for client, dial := range map[string]func(testing.TB, rueidisconn.Dialer) redislock.Conn{
		"rueidis": func(t testing.TB, to rueidisconn.Dialer) redislock.Conn {
			return must(rueidisconn.DialContext(t.Context(), "redis://any:1", to))(t)
		},
		"go-redis": func(t testing.TB, to rueidisconn.Dialer) redislock.Conn {
			return viaGoRedis(t, redis.NewClient(&redis.Options{Addr: "any:1", Dialer: to}))
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			set := testenv.RedisReplicas(t, 1)
			old, fresh := set.Primary, set.Replicas[0]
			var to atomic.Pointer[testenv.RedisServer]
			to.Store(old)
			conn := dial(t, func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, to.Load().Addr)
			})
			b := redislock.New(conn, nil)
			s := openSession(t, b, long)
			holder, _ := session(t, old.URL(), long)
			r := exclusive("demoted")
			h := granted(t, holder, exclusive(r.Name))
			reply := acquire(t, s, r)

			until(t, "the replica has it all", func() bool {
				return old.Info("replication")["master_repl_offset"] == fresh.Info("replication")["slave_repl_offset"]
			})
			set.Promote(0)
			set.Follow(old, fresh)
			// A client that has met the replica is back there after a moment.
			until(t, "both listen at the old primary", func() bool {
				return len(listening(t, old, "CHANNELS", "hf:s:*")) == 2
			})
			to.Store(fresh)
			old.Do("CLIENT KILL TYPE normal") // keeps subscriptions
			for range 3 {
				_, _ = b.Inspect(within(t, soon), r.Name)
			}
			until(t, "the waiter listens at the new primary", func() bool {
				return len(listening(t, fresh, "CHANNELS", "hf:s:*")) == 1
			})
			successor, _ := session(t, fresh.URL(), long)
			if err := successor.Release(within(t, soon), h, 0); err != nil {
				t.Fatal(err)
			}
			token := woken(t, reply)
			record, err := b.Inspect(within(t, soon), r.Name)
			if token == 0 { // told to ask again
				granted(t, s, r)
			} else if err != nil || len(record.Holders) != 1 || record.Holders[0].ID != r.ID ||
				record.Holders[0].Token != token {
				t.Errorf("the waiter %s received %d; on record is %+v (%v)", r.ID, token, record.Holders, err)
			}
		})
	}
}

// TestAddressMoves: a client has a working connection to a server that has become a replica. The
// address then leads it to the new primary.
func TestAddressMoves(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	old, fresh := set.Primary, set.Replicas[0]
	var to atomic.Pointer[testenv.RedisServer]
	to.Store(old)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, to.Load().Addr)
	}
	releases := map[string]func() error{}
	for client, conn := range map[string]redislock.Conn{
		"rueidis":  must(rueidisconn.DialContext(t.Context(), "redis://any:1", dial))(t),
		"go-redis": viaGoRedis(t, redis.NewClient(&redis.Options{Addr: "any:1", Dialer: dial})),
	} {
		s := openSession(t, redislock.New(conn, nil), time.Minute)
		h := granted(t, s, exclusive(client))
		releases[client] = func() error { return s.Release(within(t, soon), h, 0) }
	}
	until(t, "the replica has it all", func() bool {
		return old.Info("replication")["master_repl_offset"] == fresh.Info("replication")["slave_repl_offset"]
	})
	set.Promote(0)
	set.Follow(old, fresh)
	to.Store(fresh)
	_, b := session(t, fresh.URL(), time.Minute)
	for client, release := range releases {
		unanswered := false
		until(t, client+" releases at the new primary", func() bool {
			err := release()
			unanswered = unanswered || errors.Is(err, driver.ErrUncertain)
			return err == nil || unanswered && driver.IsOver(err)
		})
		if record, err := b.Inspect(within(t, soon), client); err != nil || record.Kind != driver.Unused {
			t.Errorf("%s: %+v after the release (%v)", client, record, err)
		}
	}
}

// listening returns the answer of a server to PUBSUB.
func listening(t testing.TB, server *testenv.RedisServer, words ...string) []string {
	t.Helper()
	raw := rawClient(t, server.Addr)
	all, err := raw.Do(t.Context(), raw.B().Arbitrary("PUBSUB").Args(words...).Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestListensAtPrimary: when Acquire returns, a waiter of a Cluster is subscribed at the primary,
// even if the client does not know of a failover, or reads from replicas.
func TestListensAtPrimary(t *testing.T) {
	t.Parallel()
	goRedis := func(opt redis.ClusterOptions) func(testing.TB, *testenv.RedisClusterServers) redislock.Conn {
		return func(t testing.TB, c *testenv.RedisClusterServers) redislock.Conn {
			opt := opt
			opt.Addrs = c.Addrs()
			return viaGoRedis(t, redis.NewClusterClient(&opt))
		}
	}
	c := testenv.RedisCluster(t, testenv.ClusterSetup{})
	for client, dial := range map[string]func(testing.TB, *testenv.RedisClusterServers) redislock.Conn{
		"rueidis": func(t testing.TB, c *testenv.RedisClusterServers) redislock.Conn {
			return dialURL(t, c.URL(""))
		},
		"go-redis": goRedis(redis.ClusterOptions{}),
		// RouteByLatency takes the same way. In v9.23.0 it has a data race of its own: a goroutine uses
		// the client of a new node while a field of it is set.
		"go-redis, anywhere": goRedis(redis.ClusterOptions{RouteRandomly: true}),
	} {
		t.Run(client, func(t *testing.T) {
			holder := openSession(t, redislock.New(dialURL(t, c.URL("")), nil), time.Minute)
			s := openSession(t, redislock.New(dial(t, c), nil), time.Minute)
			name := func(i int) string { return fmt.Sprintf("%s %d", client, i) }
			seen := map[string]bool{}
			wait := func(from, to, asker int) {
				for i := from; i < to; i++ {
					for _, s := range []driver.Session{holder, s} {
						r := exclusive(name(i))
						until(t, "the Cluster serves after its failover", func() bool {
							_, err := s.Acquire(within(t, soon), r)
							if err != nil && !errors.Is(err, driver.ErrUnavailable) {
								t.Fatalf("Acquire(%q): %v", r.Name, err)
							}
							return err == nil
						})
					}
					tag := tagOf(name(i))
					primary := c.Servers[c.Owner(tag, asker)]
					listens := func() bool {
						return len(listening(t, primary, "SHARDCHANNELS", "*{"+strings.Trim(tag, "{}")+"}*")) > 0
					}
					if seen[tag] { // subscribed to before the failover
						until(t, "a subscriber at the primary of "+name(i), listens)
					} else if !listens() {
						t.Errorf("no subscriber at the primary of %q when Acquire has returned", name(i))
					}
					seen[tag] = true
				}
			}
			wait(0, 10, 0)
			old := c.Owner(tagOf(name(10)), 0)
			c.Failover(tagOf(name(10)), old, (old+1)%3)
			wait(10, 20, (old+1)%3)
		})
	}
}
