package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// shardListeners counts the subscribers to sharded channels of sessions at a server.
func shardListeners(t testing.TB, r *testenv.RedisServer) (n int) {
	t.Helper()
	const script = "local n = 0 for _, c in ipairs(redis.call('PUBSUB','SHARDCHANNELS')) do n = n + redis.call('PUBSUB','SHARDNUMSUB',c)[2] end return n"
	if _, err := fmt.Sscanf(r.Do("EVAL \""+script+"\" 0"), ":%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// owner returns the server that has the keys of a name.
func owner(c *testenv.RedisClusterServers, name string) *testenv.RedisServer {
	return c.Servers[c.Owner(tagOf(name), 0)]
}

// TestShards tests what only a Cluster does. Each part leaves the Cluster as it was.
func TestShards(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{clusterRule}})
	url := c.URL("holdfast:secret")
	t.Run("names", func(t *testing.T) { shardNames(t, url) })
	t.Run("moving names", func(t *testing.T) { movingNames(t, c, url) })
	for name, dial := range map[string]dialCluster{"rueidis": clusterRueidis, "go-redis": clusterGoRedis} {
		open := func(t *testing.T) (*redislock.Backend, *testenv.TCPProxies) {
			p := testenv.Proxies(t, c.Addrs())
			return redislock.New(dial(t, c, p), nil), p
		}
		t.Run(name+", silence", func(t *testing.T) { shardSilence(t, c, open) })
		t.Run(name+", killed waiter", func(t *testing.T) { shardKilledWaiter(t, c, open) })
		t.Run(name+", thrown out", func(t *testing.T) { shardThrownOut(t, c, open) })
	}
}

// shardNames: many names, in all shards.
func shardNames(t *testing.T, url string) {
	s, b := session(t, url, long)
	var holds []driver.Hold
	prefix := newID()
	for i := range 300 {
		holds = append(holds, granted(t, s, exclusive(fmt.Sprint(prefix, i))))
	}
	if changes, err := s.Renew(within(t, soon), holds); err != nil || len(changes) != 0 {
		t.Fatalf("Renew: %v, %v", changes, err)
	}
	if list, err := b.List(within(t, soon), prefix, "", 1000); err != nil || len(list) != 300 {
		t.Fatalf("List: %d, %v", len(list), err)
	}
	if err := s.Close(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	if list, err := b.List(within(t, soon), prefix, "", 1000); err != nil || len(list) != 0 {
		t.Fatalf("List after Close: %d, %v", len(list), err)
	}
}

// movingNames: exclusive grants are renewed while their slot moves, at whichever server each of
// them is.
func movingNames(t *testing.T, c *testenv.RedisClusterServers, url string) {
	s, _ := session(t, url, long)
	var holds []driver.Hold
	first := newID()
	for i := 0; len(holds) < 20; i++ {
		if name := fmt.Sprint(first, i); hook.RedisShard(name) == hook.RedisShard(first) {
			holds = append(holds, granted(t, s, exclusive(name)))
		}
	}
	m := c.Migrate(tagOf(first), (c.Owner(tagOf(first), 0)+1)%3)
	for {
		if changes, err := s.Renew(within(t, soon), holds); err != nil || len(changes) != 0 {
			t.Errorf("Renew: %v, %v", changes, err)
		}
		if m.Move(7) == 0 {
			break
		}
	}
	m.End()
	if changes, err := s.Renew(within(t, soon), holds); err != nil || len(changes) != 0 {
		t.Errorf("Renew: %v, %v", changes, err)
	}
}

type opener func(*testing.T) (*redislock.Backend, *testenv.TCPProxies)

// shardSilence: a session without waiters is not subscribed. It subscribes to wait, and stops some
// time after.
func shardSilence(t *testing.T, c *testenv.RedisClusterServers, open opener) {
	b, _ := open(t)
	var now time.Duration
	hook.RedisClock(b, func() time.Duration { return now })
	s := openSession(t, b, long)
	name := newID()
	server := owner(c, name)
	before := shardListeners(t, server)
	h := granted(t, s, exclusive(name))
	if n := shardListeners(t, server); n != before {
		t.Errorf("%d listen; want %d", n, before)
	}
	r := exclusive(name)
	acquire(t, s, r)
	acquire(t, s, exclusive(name))
	if n := shardListeners(t, server); n != before+1 {
		t.Errorf("%d listen while two wait; want %d", n, before+1)
	}
	renew := func() {
		t.Helper()
		if _, err := s.Renew(within(t, soon), []driver.Hold{h, {Name: name, ID: r.ID}}); err != nil {
			t.Fatal(err)
		}
	}
	now += time.Hour / 2 // a waiter stays subscribed for however long it takes
	renew()
	if n := shardListeners(t, server); n != before+1 {
		t.Errorf("%d listen; want %d", n, before+1)
	}
	if err := s.Close(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	until(t, "no subscriber", func() bool { return shardListeners(t, server) == before })

	s = openSession(t, b, long)
	name = newID()
	server = owner(c, name)
	before = shardListeners(t, server)
	h = granted(t, s, exclusive(name))
	r = exclusive(name)
	acquire(t, s, r)
	if err := s.Cancel(within(t, soon), name, r.ID); err != nil {
		t.Fatal(err)
	}
	now += time.Minute
	renew()
	until(t, "no subscriber", func() bool { return shardListeners(t, server) == before })
	reply := acquire(t, s, r) // and again
	if n := shardListeners(t, server); n != before+1 {
		t.Errorf("%d listen; want %d", n, before+1)
	}
	if err := s.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token <= h.Token {
		t.Errorf("token %d after %d", token, h.Token)
	}
}

// shardKilledWaiter: the first waiter is gone, and the server knows.
func shardKilledWaiter(t *testing.T, c *testenv.RedisClusterServers, open opener) {
	first, p := open(t)
	second, _ := open(t)
	dead, s := openSession(t, first, long), openSession(t, second, long)
	name := newID()
	server := owner(c, name)
	before := shardListeners(t, server)
	h := granted(t, s, exclusive(name))
	acquire(t, dead, exclusive(name))
	r := exclusive(name)
	reply := acquire(t, s, r)
	if n := shardListeners(t, server); n != before+2 {
		t.Errorf("%d listen; want %d", n, before+2)
	}
	p.Each((*testenv.TCPProxy).Refuse)
	until(t, "one is gone", func() bool { return shardListeners(t, server) == before+1 })
	if err := s.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token <= h.Token {
		t.Errorf("token %d after %d", token, h.Token)
	}
}

// shardThrownOut: a slow reader loses its subscription, and messages with it. It subscribes and
// asks again.
func shardThrownOut(t *testing.T, c *testenv.RedisClusterServers, open opener) {
	b, p := open(t)
	s := openSession(t, b, long)
	name := newID()
	server := owner(c, name)
	server.Do("CONFIG SET client-output-buffer-limit \"pubsub 1mb 1mb 0\"")
	before := shardListeners(t, server)
	granted(t, s, exclusive(name))
	reply := acquire(t, s, exclusive(name))
	proxy := p.To(server.Addr)
	proxy.Hole()
	const flood = "for i = 1, 5 do local c = redis.call('PUBSUB','SHARDCHANNELS','*'..ARGV[1]..'*') " +
		"for _, ch in ipairs(c) do redis.call('SPUBLISH', ch, string.rep('x', 1000000)) end end return 1"
	if got := server.Do(fmt.Sprintf("EVAL \"%s\" 1 %s %s", flood, "hf:"+tagOf(name)+":x",
		"hf:"+tagOf(name)+":s:")); got != ":1" {
		t.Fatal(got)
	}
	until(t, "it is thrown out", func() bool { return shardListeners(t, server) == before })
	proxy.Heal()
	if v := woken(t, reply); v != 0 {
		t.Errorf("woken with %d; want 0: ask again", v)
	}
	until(t, "it listens again", func() bool { return shardListeners(t, server) == before+1 })
}

// TestOldCluster: servers without sharded channels. PUBLISH reaches all servers, and does not count
// subscribers.
func TestOldCluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Args: []string{
		"--rename-command", "SSUBSCRIBE", "", "--rename-command", "SPUBLISH", "",
	}})
	direct := testenv.Proxies(t, nil)
	for name, dial := range map[string]dialCluster{"rueidis": anonymousRueidis, "go-redis": anonymousGoRedis} {
		t.Run(name, func(t *testing.T) {
			a := openSession(t, redislock.New(dial(t, c, direct), nil), long)
			b := openSession(t, redislock.New(dial(t, c, direct), nil), long)
			for i := range 8 { // at whichever server the names are
				lock := fmt.Sprint(newID(), i)
				h := granted(t, a, exclusive(lock))
				r := exclusive(lock)
				reply := acquire(t, b, r)
				if err := a.Release(within(t, soon), h, 0); err != nil {
					t.Fatal(err)
				}
				if token := woken(t, reply); token <= h.Token {
					t.Errorf("token %d after %d", token, h.Token)
				}
			}
		})
	}
}

// TestSeveralTransports: TLS with client certificates, by URL.
func TestSeveralTransports(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, TLS: true})
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{TLS: true})
	for _, url := range []string{c.URL(""), s.URL("")} {
		exercise(t, url)
		bare, _, _ := strings.Cut(url, "?")
		if err := dialed(bare); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("an authority that is not trusted: %v; want ErrRefused", err)
		}
		if err := dialed(url + "&servername=other.example"); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("another server name: %v; want ErrRefused", err)
		}
	}
}

// dialed returns the error of Dial, which is repeated if a busy machine gives no answer in time.
func dialed(url string) (err error) {
	for range 10 {
		var c redislock.Conn
		if c, err = rueidisconn.Dial(url); err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			break
		}
	}
	return err
}

// TestSeveralRefused: URLs that lead to something else, or that are refused.
func TestSeveralRefused(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry"
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{clusterRule}})
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{
		Users: []string{sentinelRule}, SentinelUsers: []string{watcherRule},
	})
	single := testenv.Redis(t)
	watched := s.URL("holdfast:secret")
	for what, url := range map[string]string{
		"a single server as a Cluster": "redis+cluster://" + single.Addr,
		"two of them":                  "redis+cluster://" + single.Addr + "," + testenv.Redis(t).Addr,
		"a wrong password":             c.URL("holdfast:" + canary),
		"a single server as sentinel":  "redis+sentinel://" + single.Addr + "/mymaster",
		"sentinels, wrong password":    watched + "?sentineluser=watcher&sentinelpassword=" + canary,
		"an unknown master": strings.Replace(watched, "/"+s.Master, "/other", 1) +
			"?sentineluser=watcher&sentinelpassword=watch",
		"the server's wrong password": s.URL("holdfast:"+canary) + "?sentineluser=watcher&sentinelpassword=watch",
	} {
		if err := dialed(url); !errors.Is(err, driver.ErrRefused) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v; want ErrRefused", what, err)
		}
	}
	// One server of a Cluster, used without the others: it does not have their names.
	b := redislock.New(dialURL(t, "redis://holdfast:secret@"+c.Servers[0].Addr), nil)
	defer func() { _ = b.Close() }()
	if _, err := b.List(within(t, soon), "", "", 10); !errors.Is(err, driver.ErrRefused) ||
		!strings.Contains(err.Error(), "redis+cluster://") {
		t.Errorf("one server of a Cluster: %v; want ErrRefused", err)
	}
	exercise(t, c.URL("holdfast:secret"))
	exercise(t, watched+"?sentineluser=watcher&sentinelpassword=watch")
}
