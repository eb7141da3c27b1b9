package redislock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

const (
	patience  = 100 * time.Millisecond // the bound of each call while the servers are silent
	obedience = time.Second            // in which the calls of TestTimedSilent return
)

// silentServers are servers that can all stop answering, and a client of them.
type silentServers struct {
	servers []*testenv.RedisServer
	links   *testenv.TCPProxies
	dial    func(testing.TB) redislock.Conn
}

// TestSilent: every call returns when its context ends, with the context's error, whatever the
// servers do and whichever client is used. The clients' own limits are far longer.
func TestSilent(t *testing.T) {
	t.Parallel()
	for name, deploy := range map[string]func(*testing.T) *silentServers{
		"rueidis":            silentSingle(patientRueidis),
		"go-redis":           silentSingle(patientGoRedis(false)),
		"go-redis, obedient": silentSingle(patientGoRedis(true)),
		"sentinel, rueidis":  silentSentinel(silentSentinelRueidis),
		"sentinel, go-redis": silentSentinel(silentSentinelGoRedis),
		"cluster, rueidis":   silentCluster(silentClusterRueidis),
		"cluster, go-redis":  silentCluster(silentClusterGoRedis),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			for fault, begin := range d.faults() {
				t.Run(fault, func(t *testing.T) { fallSilent(t, d.dial, begin, fault == "killed", soon) })
			}
		})
	}
}

// TestTimedSilent: the same with clients as programs have them, and soon.
func TestTimedSilent(t *testing.T) {
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": plainRueidis, "rueidis, by URL": dialRueidis, "go-redis": plainGoRedis(false),
		"go-redis, obedient": plainGoRedis(true),
	} {
		t.Run(name, func(t *testing.T) {
			d := silentSingle(dial)(t)
			fallSilent(t, d.dial, d.faults()["frozen"], false, obedience)
		})
	}
}

// faults are ways to stop answering. Each returns a function that ends it.
func (d *silentServers) faults() map[string]func() (end func()) {
	each := func(do func(*testenv.TCPProxy)) { d.links.Each(do) }
	heal := func() { each((*testenv.TCPProxy).Heal) }
	return map[string]func() func(){
		"frozen": func() func() {
			for _, s := range d.servers {
				s.Pause()
			}
			return func() {
				for _, s := range d.servers {
					s.Continue()
				}
			}
		},
		"hole":    func() func() { each((*testenv.TCPProxy).Hole); return heal },
		"killed":  func() func() { each((*testenv.TCPProxy).Refuse); return heal },
		"replies": func() func() { each((*testenv.TCPProxy).DropReplies); return heal },
		"slow": func() func() {
			each(func(p *testenv.TCPProxy) { p.Delay(700 * time.Millisecond) })
			return heal
		},
	}
}

// fallSilent makes all calls at once with short contexts, twice, while the servers are silent and
// others with longer contexts are under way. Each must return before the bound. If connections end,
// their errors count as well as the contexts'.
func fallSilent(t *testing.T, dial func(testing.TB) redislock.Conn, begin func() func(), breaks bool,
	bound time.Duration) {
	const ttl = long
	b := redislock.New(dial(t), nil)
	t.Cleanup(func() { _ = b.Close() })
	open := func(id string) driver.Session {
		s, err := b.Open(within(t, soon), driver.SessionConfig{ID: id, TTL: ttl, Info: "{}"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, other := open(newID()), open(newID())
	name := func() string { return "silent/" + newID() }
	held := func() driver.Hold { return granted(t, s, exclusive(name())) }
	h1, h2, h3, taken := held(), held(), held(), held()
	latch := name()
	if _, err := s.SetCount(within(t, soon), latch, 1); err != nil {
		t.Fatal(err)
	}
	uncontended := name() // the fast path is used for it
	for range 3 {
		r := exclusive(uncontended)
		if err := s.Release(within(t, soon), granted(t, s, r), 0); err != nil {
			t.Fatal(err)
		}
	}
	second := redislock.New(dial(t), nil)
	t.Cleanup(func() { _ = second.Close() })
	c, err := holdfast.New(within(t, soon), second, &holdfast.Config{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Mutex(name()).Lock(within(t, soon))
	if err != nil {
		t.Fatal(err)
	}
	watched := name()
	if _, err := c.Latch(watched).Set(within(t, soon), 1); err != nil {
		t.Fatal(err)
	}

	end := begin()
	var others sync.WaitGroup
	defer func() {
		end()
		others.Wait()
		_ = c.Close(within(t, soon))
	}()
	for range 3 { // clients reconnect for these, which have time
		others.Go(func() { _, _ = s.Acquire(within(t, 2*time.Second), exclusive(name())) })
	}
	type call struct {
		what string
		do   func(ctx context.Context) error
	}
	calls := []call{
		{"Acquire", func(ctx context.Context) error { _, err := s.Acquire(ctx, exclusive(name())); return err }},
		{"Acquire of a name that was free", func(ctx context.Context) error {
			_, err := s.Acquire(ctx, exclusive(uncontended))
			return err
		}},
		{"Acquire, no wait", func(ctx context.Context) error {
			r := exclusive(taken.Name)
			r.Wait = false
			_, err := s.Acquire(ctx, r)
			return err
		}},
		{"Acquire, wait", func(ctx context.Context) error {
			_, err := other.Acquire(ctx, exclusive(taken.Name))
			return err
		}},
		{"Cancel", func(ctx context.Context) error { return s.Cancel(ctx, name(), newID()) }},
		{"Release", func(ctx context.Context) error { return s.Release(ctx, h1, 0) }},
		{"Release, keep", func(ctx context.Context) error { return s.Release(ctx, h1, time.Second) }},
		{"Renew", func(ctx context.Context) error { _, err := s.Renew(ctx, []driver.Hold{h1, h2}); return err }},
		{"Downgrade", func(ctx context.Context) error { return s.Downgrade(ctx, h2) }},
		{"Adopt", func(ctx context.Context) error { return other.Adopt(ctx, h3, newID(), "") }},
		{"SetCount", func(ctx context.Context) error { _, err := s.SetCount(ctx, name(), 1); return err }},
		{"CountDown", func(ctx context.Context) error { _, err := s.CountDown(ctx, latch, newID()); return err }},
		{"Await", func(ctx context.Context) error { _, err := s.Await(ctx, latch, newID()); return err }},
		{"Open", func(ctx context.Context) error {
			_, err := b.Open(ctx, driver.SessionConfig{ID: newID(), TTL: ttl})
			return err
		}},
		{"Inspect", func(ctx context.Context) error { _, err := b.Inspect(ctx, h1.Name); return err }},
		{"List", func(ctx context.Context) error { _, err := b.List(ctx, "", "", 10); return err }},
		{"Break", func(ctx context.Context) error { return b.Break(ctx, h1.Name, h1.Token) }},
		{"SetLimit", func(ctx context.Context) error { return b.SetLimit(ctx, h1.Name, 2) }},
		{"Diagnose", func(ctx context.Context) error { _, err := b.Diagnose(ctx, ttl); return err }},
		{"Client.Mutex.Lock", func(ctx context.Context) error { _, err := c.Mutex(name()).Lock(ctx); return err }},
		{"Client.Mutex.TryLock", func(ctx context.Context) error { _, err := c.Mutex(name()).TryLock(ctx); return err }},
		{"Client.LockAll", func(ctx context.Context) error {
			_, err := holdfast.LockAll(ctx, c.Mutex(name()), c.Mutex(name()))
			return err
		}},
		{"Client.RWMutex.RLock", func(ctx context.Context) error { _, err := c.RWMutex(name()).RLock(ctx); return err }},
		{"Client.Semaphore.Acquire", func(ctx context.Context) error {
			_, err := c.Semaphore(name(), 2).Acquire(ctx, 1)
			return err
		}},
		{"Client.Latch.Wait", func(ctx context.Context) error { return c.Latch(watched).Wait(ctx) }},
	}
	closings := []call{
		{"Session.Close", func(ctx context.Context) error { return s.Close(ctx) }},
		{"Client.Close", func(ctx context.Context) error { return c.Close(ctx) }},
	}
	for _, calls := range [][]call{calls, closings} {
		for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
			var all sync.WaitGroup
			for _, call := range calls {
				all.Go(func() { obeys(t, call.what, call.do, end, breaks, bound) })
			}
			all.Wait()
		}
	}
}

// obeys makes a call whose context ends with a certain error.
func obeys(t *testing.T, what string, do func(context.Context) error, end error, breaks bool, bound time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	if errors.Is(end, context.Canceled) {
		ctx, cancel = context.WithCancel(t.Context())
		timer := time.AfterFunc(patience, cancel)
		defer timer.Stop()
	}
	defer cancel()
	start := time.Now()
	err := do(ctx)
	d := time.Since(start)
	if d > bound {
		t.Errorf("%s, whose context ended (%v) after %v, returned after %v", what, end, patience, d)
	}
	broken := breaks && (errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable))
	if d >= patience && err != nil && !errors.Is(err, end) && !broken {
		t.Errorf("%s: %v; want the context's error, %v", what, err, end)
	}
}

func silentSingle(dial func(testing.TB, string) redislock.Conn) func(*testing.T) *silentServers {
	return func(t *testing.T) *silentServers {
		server := testenv.Redis(t)
		links := testenv.Proxies(t, []string{server.Addr})
		addr := links.To(server.Addr).Addr
		return &silentServers{[]*testenv.RedisServer{server}, links,
			func(t testing.TB) redislock.Conn { return dial(t, addr) }}
	}
}

// plainRueidis and plainGoRedis are clients with default options.
func plainRueidis(t testing.TB, addr string) redislock.Conn {
	return viaRueidis(t, rueidis.ClientOption{InitAddress: []string{addr}})
}

func plainGoRedis(obedient bool) func(testing.TB, string) redislock.Conn {
	return func(t testing.TB, addr string) redislock.Conn {
		return viaGoRedis(t, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: obedient}))
	}
}

// patient are clients that would wait for a server until any test has failed.
const patientFor = 10 * time.Minute

func patientOption(links *testenv.TCPProxies) rueidis.ClientOption {
	opt := likeDial(links)
	opt.Dialer.Timeout, opt.ConnWriteTimeout = patientFor, patientFor
	opt.Username, opt.Password = "", ""
	return opt
}

func patientRueidis(t testing.TB, addr string) redislock.Conn {
	opt := patientOption(testenv.Proxies(t, nil))
	opt.InitAddress, opt.ForceSingleClient = []string{addr}, true
	return viaRueidis(t, opt)
}

func patientGoRedis(obedient bool) func(testing.TB, string) redislock.Conn {
	return func(t testing.TB, addr string) redislock.Conn {
		return viaGoRedis(t, redis.NewClient(&redis.Options{
			Addr: addr, ContextTimeoutEnabled: obedient, DialTimeout: patientFor, ReadTimeout: patientFor,
			PoolTimeout: patientFor,
		}))
	}
}

func silentSentinel(dial func(testing.TB, *testenv.RedisSentinelServers, *testenv.TCPProxies) redislock.Conn) func(
	*testing.T) *silentServers {
	return func(t *testing.T) *silentServers {
		s := testenv.RedisSentinel(t, testenv.SentinelSetup{})
		links := testenv.Proxies(t, s.Addrs())
		return &silentServers{slices.Concat(s.Servers, s.Sentinels), links,
			func(t testing.TB) redislock.Conn { return dial(t, s, links) }}
	}
}

func silentSentinelRueidis(t testing.TB, s *testenv.RedisSentinelServers, links *testenv.TCPProxies) redislock.Conn {
	return must(rueidisconn.DialContext(t.Context(), s.URL(""), links.Dial))(t)
}

func silentSentinelGoRedis(t testing.TB, s *testenv.RedisSentinelServers, links *testenv.TCPProxies) redislock.Conn {
	opt := &redis.FailoverOptions{MasterName: s.Master, Dialer: links.Dial}
	for _, r := range s.Sentinels {
		opt.SentinelAddrs = append(opt.SentinelAddrs, r.Addr)
	}
	return viaGoRedis(t, redis.NewFailoverClient(opt))
}

func silentCluster(dial func(testing.TB, *testenv.RedisClusterServers, *testenv.TCPProxies) redislock.Conn) func(
	*testing.T) *silentServers {
	return func(t *testing.T) *silentServers {
		c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true,
			Args: []string{"--cluster-node-timeout", "60000"}})
		links := testenv.Proxies(t, c.Addrs())
		return &silentServers{c.Servers, links, func(t testing.TB) redislock.Conn { return dial(t, c, links) }}
	}
}

func silentClusterRueidis(t testing.TB, c *testenv.RedisClusterServers, links *testenv.TCPProxies) redislock.Conn {
	return must(rueidisconn.DialContext(t.Context(), c.URL(""), links.Dial))(t)
}

func silentClusterGoRedis(t testing.TB, c *testenv.RedisClusterServers, links *testenv.TCPProxies) redislock.Conn {
	return viaGoRedis(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Dialer: links.Dial}))
}
