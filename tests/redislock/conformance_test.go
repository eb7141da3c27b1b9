package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// aclRule is the rule in the package's documentation.
const aclRule = "user holdfast on >secret resetkeys ~hf:* resetchannels &hf:s:* -@all " +
	"+evalsha +eval +publish +pubsub|numsub +subscribe +unsubscribe +hello +ping +select " +
	"+get +mget +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hdel +hexists +hincrby " +
	"+zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex"

const ttl = 2 * time.Second // longer than a busy machine stalls

// TestConformance runs the whole suite with one client, as a user with only the documented
// permissions.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{aclRule + " +client|tracking"}, "--appendonly", "yes")
	drivertest.Run(t, harness(server, nil, func(t testing.TB, addr string) redislock.Conn {
		t.Helper()
		return dialURL(t, "redis://holdfast:secret@"+addr)
	}))
}

// TestConformanceGoRedis runs the suite with the other client.
func TestConformanceGoRedis(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness(testenv.Redis(t, "--appendonly", "yes"), connected("no deadline"), dialGoRedis))
}

// TestTimedConformance runs the checks with time limits, with both clients.
func TestTimedConformance(t *testing.T) {
	server := testenv.Redis(t)
	t.Run("rueidis", func(t *testing.T) { drivertest.RunTimed(t, harness(server, nil, dialRueidis)) })
	t.Run("go-redis", func(t *testing.T) { drivertest.RunTimed(t, harness(server, nil, dialGoRedis)) })
}

// connected are the checks that depend on the client and its connections: wake-ups, lost answers
// and connections, requests that overtake each other, refusals, and the meaning of errors.
// Everything else is decided by the scripts, which are the same for each client. At full size it is
// nil: every check.
func connected(more ...string) []string {
	if testenv.Deep() {
		return nil
	}
	return append(more,
		"watch", "watch cut off", "watch lost hints",
		"one holder", "close", "handed over", "cancel races", "lost push", "readers enter together", "break",
		"answer to acquire lost", "answer to joining lost", "answer to release lost", "answer to cancel lost",
		"released during an outage", "restart", "refused release", "refused renewal", "refused acquire",
		"passed over while answers are lost", "passed over on a forgotten connection", "cancelled while handed over",
		"a damaged lock", "answer to adopt lost", "hostile names", "list prefix", "latch", "latch push lost",
		"client excludes", "client cancelled", "acquire after its cancel", "attempt after its cancel", "cancel again",
		"place after its cancel", "close during locks", "pushes for nobody", "pushes for requests",
		"a push that is believed", "waiting for hostile names", "hostile prefixes", "hostile IDs of latches",
		"call-back", "sticky clients",
		"notes and labels", "history", "histories of hostile names", "answer to history lost", "refused history",
	)
}

// reconnected are those of connected that depend on how a client finds its server: the connections
// are cut, silent or forgotten, requests overtake each other, and the server starts again.
func reconnected() []string {
	if testenv.Deep() {
		return nil
	}
	return []string{
		"watch", "watch cut off", "watch lost hints", "one holder", "close", "handed over", "cancel races", "lost push",
		"answer to acquire lost", "answer to release lost", "released during an outage", "restart", "refused acquire",
		"passed over while answers are lost", "passed over on a forgotten connection", "latch push lost",
		"client excludes", "client cancelled", "acquire after its cancel", "close during locks",
	}
}

func must(c redislock.Conn, err error) func(testing.TB) redislock.Conn {
	return func(t testing.TB) redislock.Conn {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func dialRueidis(t testing.TB, addr string) redislock.Conn {
	t.Helper()
	return dialURL(t, "redis://"+addr)
}

// dialURL connects, and tries again while the server does not answer within the limit of Dial.
func dialURL(t testing.TB, url string) redislock.Conn {
	t.Helper()
	c, err := rueidisconn.Dial(url)
	for end := time.Now().Add(soon); errors.Is(err, driver.ErrUnavailable) && time.Now().Before(end); {
		c, err = rueidisconn.Dial(url)
	}
	return must(c, err)(t)
}

func dialGoRedis(t testing.TB, addr string) redislock.Conn {
	client := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: 3 * time.Second, ReadTimeout: 3 * time.Second})
	t.Cleanup(func() { _ = client.Close() })
	return goredisconn.New(client)
}

// rawClient is a rueidis client as Dial makes it.
func rawClient(t testing.TB, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
		DisableCache: true, PipelineMultiplex: -1, ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func harness(server *testenv.RedisServer, only []string,
	dial func(testing.TB, string) redislock.Conn) drivertest.Harness {
	return drivertest.Harness{
		TTL:     ttl,
		Only:    only,
		Names:   testenv.Rounds(300, 10_000),
		Waiters: testenv.Rounds(driver.MaxWaiters+20, 200),
		Refuse:  refusals(func() *testenv.RedisServer { return server }),
		Damage:  damages(func(string) *testenv.RedisServer { return server }, tagOf),
		Forger:  forger(func(string) *testenv.RedisServer { return server }, tagOf, false, true),
		Open: proxied(server.Addr, func(t testing.TB, addr string) driver.Backend {
			return redislock.New(dial(t, addr), nil)
		}),
		Restart: func(t testing.TB) {
			t.Helper()
			server.Restart(true)
		},
	}
}

// proxied opens backends of the server at addr, each through a proxy of its own.
func proxied(addr string, open func(t testing.TB, addr string) driver.Backend) func(testing.TB) drivertest.Conn {
	return func(t testing.TB) drivertest.Conn {
		t.Helper()
		proxy := testenv.Proxy(t, addr)
		b := open(t, proxy.Addr)
		t.Cleanup(func() { _ = b.Close() })
		return drivertest.Conn{
			Backend:     b,
			Kill:        proxy.Refuse,
			Cut:         func() func() { proxy.Hole(); return proxy.Heal },
			DropReplies: func() func() { proxy.DropReplies(); return proxy.Heal },
			Hold:        proxy.Hold,
			Forget:      proxy.Forget,
		}
	}
}
