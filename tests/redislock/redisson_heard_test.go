package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// patientTTL is a TTL whose third is far longer than a test: a loss that is heard of before was not
// found by a renewal that was due.
const patientTTL = 10 * time.Minute

// A heldKind is a kind of lock whose end by force is announced.
type heldKind struct {
	what    string
	take    func(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Lease, error)
	channel string
	number  string // what forceUnlock announces
}

var heldKinds = []heldKind{
	{"lock", func(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Lease, error) {
		return c.Mutex(name).Lock(ctx)
	}, "redisson_lock__channel", "0"},
	{"write", func(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Lease, error) {
		return c.RWMutex(name).Lock(ctx)
	}, "redisson_rwlock", "1"},
	{"read", func(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Lease, error) {
		return c.RWMutex(name).RLock(ctx)
	}, "redisson_rwlock", "0"},
}

// force ends a lock as forceUnlock does. publish is PUBLISH or SPUBLISH.
func (j *java) force(name, publish string, k heldKind) {
	j.t.Helper()
	if j.number("EVAL", `
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call(ARGV[1], ARGV[2], ARGV[3])
return 1`, "1", name, publish, k.channel+":{"+name+"}", k.number) != 1 {
		j.t.Fatalf("%s: there was no lock", k.what)
	}
}

// hearer is a client in Go that counts its renewals.
type hearer struct {
	*holdfast.Client
	renewals atomic.Int64
}

func newHearer(t testing.TB, conn redislock.Conn) *hearer {
	h := new(hearer)
	b := redisson.New(conn, nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: patientTTL, Observer: &holdfast.Observer{
		Exchanged: func(x holdfast.Exchange) {
			if x.Op == "renew" {
				h.renewals.Add(1)
			}
		}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(within(t, soon)) })
	h.Client = c
	return h
}

// listening takes a lock, and returns when its lease listens.
func (h *hearer) listening(t testing.TB, k heldKind, name string) *holdfast.Lease {
	t.Helper()
	before := h.renewals.Load()
	l, err := k.take(within(t, soon), h.Client, name)
	if err != nil {
		t.Fatal(err)
	}
	until(t, k.what+" is checked once", func() bool { return h.renewals.Load() > before })
	return l
}

// lost checks that the store has told a lease that it is over.
func lost(t testing.TB, what string, l *holdfast.Lease) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(soon):
		t.Fatalf("%s: its holder has not heard of its end", what)
	}
	var why *holdfast.Error
	if err := l.Err(); !errors.As(err, &why) || !errors.Is(err, holdfast.ErrLost) || why.Reason == holdfast.ReasonExpired {
		t.Errorf("%s: %v", what, err)
	}
}

// TestRedissonForceUnlock: a holder in Go hears at once of a forceUnlock in Java. Nothing that is
// said on the channel ends a lease that the store has.
func TestRedissonForceUnlock(t *testing.T) {
	t.Parallel()
	for client, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis,
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			m := newMixed(t)
			h := newHearer(t, dial(t, m.addr))
			for _, k := range heldKinds {
				name := newID()
				l := h.listening(t, k, name)
				before := h.renewals.Load()
				m.do("PUBLISH", k.channel+":{"+name+"}", k.number)
				until(t, "it is checked", func() bool { return h.renewals.Load() > before })
				if err := l.Err(); err != nil {
					t.Errorf("%s: %v after a message that was not true", k.what, err)
				}
				m.force(name, "PUBLISH", k)
				lost(t, k.what, l)
			}
		})
	}
}

// TestRedissonForceUnlockUnheard: what happens while the connection is away is found out when the
// subscription is back.
func TestRedissonForceUnlockUnheard(t *testing.T) {
	t.Parallel()
	for client, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis,
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			m := newMixed(t)
			p := testenv.Proxy(t, m.addr)
			h := newHearer(t, dial(t, p.Addr))
			l := h.listening(t, heldKinds[0], newID())
			p.Refuse()
			m.force(l.Name(), "PUBLISH", heldKinds[0])
			p.Heal()
			lost(t, client, l)
		})
	}
}

// TestRedissonListeningCost: short holds do not listen, however many there are. Our own messages cost
// a holder nothing, and those of others a check now and then.
func TestRedissonListeningCost(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	h := newHearer(t, dialRueidis(t, m.addr))
	k, name := heldKinds[0], newID()
	var slow int64 // holds that lasted for long, on a busy machine
	pairs := func(n int) {
		t.Helper()
		for range n {
			began := time.Now()
			l, err := k.take(within(t, soon), h.Client, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > 100*time.Millisecond {
				slow++
			}
		}
	}
	const many = 300
	pairs(1) // now the server knows the scripts
	before, start := m.commands(), time.Now()
	pairs(many)
	looks := int64(time.Since(start)/(2*time.Second)) + 1 // at the subscription of the session
	after := m.commands()
	if n := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; n > 2*many+looks+2*slow {
		t.Errorf("%d scripts for %d pairs", n, many)
	}
	if n := after["subscribe"] - before["subscribe"]; n > slow {
		t.Errorf("%d subscriptions for short holds", n)
	}

	l := h.listening(t, k, name)
	if err := l.Release(); err != nil { // the subscription stays for a while
		t.Fatal(err)
	}
	checks := h.renewals.Load()
	pairs(many)
	// The message of that release may be looked at late, when the name has been taken again.
	if n := h.renewals.Load() - checks; n > slow+1 {
		t.Errorf("%d checks for our own messages", n)
	}

	l = h.listening(t, k, name)
	checks, start = h.renewals.Load(), time.Now()
	for range 2000 {
		m.do("PUBLISH", k.channel+":{"+name+"}", "0")
	}
	if n, most := h.renewals.Load()-checks, int64(time.Since(start)/(50*time.Millisecond))+2; n > most {
		t.Errorf("%d checks; want at most %d", n, most)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// commands returns how often the server has run each command.
func (m *mixed) commands() map[string]int64 {
	m.t.Helper()
	stats, _ := m.do("INFO", "commandstats").ToString()
	all := map[string]int64{}
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		all[name], _ = strconv.ParseInt(calls, 10, 64)
	}
	return all
}

// TestRedissonForceUnlockCluster: in a Cluster a holder hears of a forceUnlock, too, also after its
// slot has moved. A hundred holds have a few connections.
func TestRedissonForceUnlockCluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
	raw, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	j := newJava(t, raw)
	for client, conn := range map[string]redislock.Conn{
		"rueidis":  dialURL(t, c.URL("")),
		"go-redis": viaGoRedis(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})),
	} {
		h := newHearer(t, conn)
		listens := func(name string) bool {
			v, err := conn.Run(within(t, soon), redislock.Listeners, []string{"redisson_lock__channel:{" + name + "}"},
				[]string{"SHARDNUMSUB"})
			return err == nil && v.Int > 0
		}
		type held struct {
			*holdfast.Lease
			heldKind
			publish string
		}
		var all []held
		checks := h.renewals.Load()
		for _, publish := range []string{"PUBLISH", "SPUBLISH"} {
			for _, k := range heldKinds {
				l, err := k.take(within(t, soon), h.Client, newID())
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, held{l, k, publish})
			}
		}
		const many = 100
		leases := make([]*holdfast.Lease, many)
		for i := range leases {
			var err error
			if leases[i], err = h.Mutex(fmt.Sprint(client, i)).Lock(within(t, soon)); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range leases {
			until(t, "it listens", func() bool { return listens(l.Name()) })
		}
		until(t, "they are checked", func() bool { return h.renewals.Load() > checks })
		for _, l := range all {
			j.force(l.Name(), l.publish, l.heldKind)
			lost(t, client+", "+l.what+", "+l.publish, l.Lease)
		}
		for _, s := range c.Servers {
			if n, _ := strconv.Atoi(s.Info("clients")["connected_clients"]); n > 40 {
				t.Errorf("%s: %d connections", client, n)
			}
		}
		l := leases[0]
		tag := "{" + l.Name() + "}"
		c.Migrate(tag, (c.Owner(tag, 0)+1)%3).End()
		until(t, "it listens at the other server", func() bool { return listens(l.Name()) })
		j.force(l.Name(), "SPUBLISH", heldKinds[0])
		lost(t, client+", moved", l)
		for _, l := range leases[1:] {
			if err := l.Release(); err != nil {
				t.Errorf("%s: %v", client, err)
			}
		}
	}
}

// TestRedissonForceUnlockFailover: a holder listens at the next primary after one has died.
func TestRedissonForceUnlockFailover(t *testing.T) {
	t.Parallel()
	if !testenv.Deep() {
		return // scripts/deep.sh runs it
	}
	for client, dial := range map[string]func(c *testenv.RedisClusterServers) redislock.Conn{
		"rueidis": func(c *testenv.RedisClusterServers) redislock.Conn { return dialURL(t, c.URL("")) },
		"go-redis": func(c *testenv.RedisClusterServers) redislock.Conn {
			return viaGoRedis(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}))
		},
	} {
		c := testenv.RedisCluster(t, testenv.ClusterSetup{})
		conn := dial(c)
		h := newHearer(t, conn)
		var leases []*holdfast.Lease
		for range 20 {
			l, err := h.Mutex(newID()).Lock(within(t, soon))
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
		}
		until(t, "they listen", func() bool { return h.renewals.Load() > 0 })
		time.Sleep(2 * time.Second) // for the replicas
		tag := "{" + leases[0].Name() + "}"
		old := c.Owner(tag, 0)
		c.Servers[old].Kill()
		now := c.Promoted(tag, old, (old+1)%3)
		raw := rawClient(t, c.Servers[now].Addr)
		for _, l := range leases {
			if c.Owner("{"+l.Name()+"}", (old+1)%3) != now {
				continue
			}
			channel := "redisson_lock__channel:{" + l.Name() + "}"
			until(t, client+" listens at the next primary", func() bool {
				v, err := conn.Run(within(t, soon), redislock.Listeners, []string{channel}, []string{"SHARDNUMSUB"})
				return err == nil && v.Int > 0
			})
			newJava(t, raw).force(l.Name(), "SPUBLISH", heldKinds[0])
			lost(t, client, l)
		}
	}
}
