package redislock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// complaints are the codes that are not fine, each with its severity and its number of servers.
func complaints(list []driver.Finding) string {
	count := map[string]int{}
	for _, f := range list {
		if f.Severity != driver.Fine && !ofTheMachine(f) {
			count[strings.TrimPrefix(f.Code, "redis.")+" "+f.Severity.String()]++
		}
	}
	var all []string
	for what, n := range count {
		all = append(all, fmt.Sprint(what, " ", n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func diagnoseWaiting(t testing.TB, conn redislock.Conn, replicas int) []driver.Finding {
	t.Helper()
	b := redislock.New(conn, &redislock.Config{WaitReplicas: replicas})
	t.Cleanup(func() { _ = b.Close() })
	for left := 3; ; left-- {
		list, err := b.Diagnose(within(t, soon), 15*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 || !slices.ContainsFunc(list, leftOpen) {
			return list
		}
	}
}

// leftOpen reports whether a server that was silent for seconds has left a part of the report open. Other parts
// are open because the client may not ask.
func leftOpen(f driver.Finding) bool {
	always := []string{"redis.sentinels", "redis.users", "redis.latency"}
	return f.Severity == driver.Unclear && !slices.Contains(always, f.Code)
}

// Through a client of a Cluster every primary is asked, and one that is gone is a finding. Replicas are
// asked as soon as the client knows them, which takes some seconds.
func TestDoctorWholeCluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Args: good, Down: time.Minute})
	direct := testenv.Proxies(t, nil)
	for name, dial := range map[string]dialCluster{"rueidis": anonymousRueidis, "go-redis": anonymousGoRedis} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range redislock.Ask(within(t, soon), dial(t, c, direct).(redislock.Asker), "PING") {
				if got = append(got, a.Server); a.Err != nil || a.Value.Text != "PONG" {
					t.Errorf("%+v", a)
				}
			}
			for _, primary := range c.Addrs()[:3] {
				if !slices.Contains(got, primary) {
					t.Errorf("asked %q, want %q, too", got, primary)
				}
			}
			list := diagnoseWaiting(t, allKnown(t, c, dial, direct), 0)
			if got := complaints(list); got != "cutoff endangers 3, replicas endangers 3" {
				t.Errorf("not fine: %s", got)
			}
			seen := map[string]int{} // by server
			for _, f := range list {
				if f.Code == "redis.role" || f.Code == "redis.clock" {
					seen[f.Server]++
				}
			}
			for _, primary := range c.Addrs()[:3] {
				if seen[primary] != 2 {
					t.Errorf("roles and clocks of %v", seen)
				}
			}
			if got := complaints(diagnoseWaiting(t, allKnown(t, c, dial, direct), 1)); got != "" {
				t.Errorf("with all replicas not fine: %s", got)
			}
			if got := complaints(diagnoseWaiting(t, allKnown(t, c, dial, direct), 2)); got != "replicas slows 3" {
				t.Errorf("with more than all replicas: %s", got)
			}
		})
	}
	conn, victim := anonymousRueidis(t, c, direct), 0
	for victim == c.Owner(tagOf("holdfast doctor"), 0) || victim == c.Owner("{00}", 0) { // the doctor uses these
		victim++
	}
	c.Servers[victim].Kill()
	if list := diagnoseWaiting(t, conn, 0); !slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Code == "redis.reach" && f.Server == c.Servers[victim].Addr
	}) {
		t.Errorf("a server that is gone: %+v", list)
	}
}

// everywhere returns a function that runs commands at each server, as the user default, whose
// password may be set meanwhile.
func everywhere(t testing.TB, servers ...*testenv.RedisServer) func(commands ...string) {
	var clients []rueidis.Client
	for _, s := range servers {
		clients = append(clients, rawClient(t, s.Addr))
	}
	return func(commands ...string) {
		t.Helper()
		for _, client := range clients {
			for _, line := range commands {
				if err := client.Do(within(t, soon), client.B().Arbitrary(strings.Fields(line)...).Build()).Error(); err != nil {
					t.Fatal(line, err)
				}
			}
		}
	}
}

func TestDoctorSentinel(t *testing.T) {
	t.Parallel()
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{Users: []string{sentinelRule + " +info +config|get " + askUsers},
		SentinelUsers: []string{watcherRule + " " + askUsers}, Args: good})
	direct := testenv.Proxies(t, nil)
	dialed := func(t testing.TB, s *testenv.RedisSentinelServers, _ *testenv.TCPProxies) redislock.Conn {
		return dialURL(t, s.URL("holdfast:secret")+"?sentineluser=watcher&sentinelpassword=watch")
	}
	for name, c := range map[string]struct {
		dial dialSentinel
		want string // of the sentinels, whose user default is open to all
	}{"rueidis": {dialed, "sentinels endangers 3"}, "a rueidis client": {sentinelRueidis, "sentinels unknown 1"},
		"go-redis": {sentinelGoRedis, "sentinels unknown 1"}} {
		t.Run(name, func(t *testing.T) {
			for replicas, more := range []string{"cutoff endangers 1, replicas endangers 1",
				"cutoff endangers 1, replicas endangers 1", ""} {
				list := diagnoseWaiting(t, c.dial(t, s, direct), replicas)
				want := strings.TrimPrefix(more+", "+c.want+", users endangers 1", ", ")
				if got := complaints(list); got != want {
					t.Errorf("with %d replicas of two: %s; want %s", replicas, got, want)
				}
				for _, f := range list {
					if f.Server != "" && f.Server != s.Servers[0].Addr && f.Server != "the primary" && f.Code != "redis.sentinels" {
						t.Errorf("of server %q", f.Server)
					}
				}
			}
		})
	}
	// A user that may publish on the channel of sentinels can redirect clients; the doctor's advice
	// prevents that.
	expect := func(want string) {
		t.Helper()
		list := diagnoseWaiting(t, dialed(t, s, nil), 2)
		if got := complaints(list); got != want {
			t.Errorf("not fine: %s, want %s: %+v", got, want, list)
		}
	}
	change := everywhere(t, append(s.Sentinels[:3:3], s.Servers[0])...)
	change("ACL SETUSER stranger on >p ~theirs:* &* +@all -@admin -@dangerous", "ACL SETUSER default resetpass >secret")
	expect("sentinels endangers 4, users endangers 1")
	change("ACL SETUSER stranger resetchannels &theirs:*")
	expect("")
}
