package redislock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// complaints are the codes that are not fine, each with its severity and how many servers it is about.
func complaints(list []driver.Finding) string {
	count := map[string]int{}
	for _, f := range list {
		if f.Severity != driver.Fine && f.Code != "redis.latency" { // which depends on the machine
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
	list, err := b.Diagnose(within(t, soon), 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Through a client of a Cluster every primary is asked, and one that is gone is a finding.
func TestDoctorWholeCluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Args: good})
	direct := testenv.Proxies(t, nil)
	for name, dial := range map[string]dialCluster{"rueidis": anonymousRueidis, "go-redis": anonymousGoRedis} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range dial(t, c, direct).(redislock.Asker).Ask(within(t, soon), "PING") {
				if got = append(got, a.Server); a.Err != nil || a.Value.Text != "PONG" {
					t.Errorf("%+v", a)
				}
			}
			if want := slices.Sorted(slices.Values(c.Addrs()[:3])); !slices.Equal(got, want) {
				t.Errorf("asked %q, want %q", got, want)
			}
			list := diagnoseWaiting(t, dial(t, c, direct), 0)
			if got := complaints(list); got != "cutoff endangers 3, replicas endangers 3" {
				t.Errorf("not fine: %s", got)
			}
			seen := map[string]int{} // by server
			for _, f := range list {
				if f.Code == "redis.role" || f.Code == "redis.clock" {
					seen[f.Server]++
				}
			}
			if len(seen) != 3 || seen[c.Servers[0].Addr] != 2 {
				t.Errorf("roles and clocks of %v", seen)
			}
			if got := complaints(diagnoseWaiting(t, dial(t, c, direct), 1)); got != "" {
				t.Errorf("with all replicas not fine: %s", got)
			}
			if got := complaints(diagnoseWaiting(t, dial(t, c, direct), 2)); got != "replicas slows 3" {
				t.Errorf("with more than all replicas: %s", got)
			}
		})
	}
	conn, victim := anonymousRueidis(t, c, direct), 0
	for victim == c.Owner(tagOf("holdfast doctor"), 0) || victim == c.Owner("{00}", 0) { // what is tried is tried at these
		victim++
	}
	c.Servers[victim].Kill()
	if list := diagnoseWaiting(t, conn, 0); !slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Code == "redis.reach" && f.Server == c.Servers[victim].Addr
	}) {
		t.Errorf("a server that is gone: %+v", list)
	}
}

func TestDoctorSentinel(t *testing.T) {
	t.Parallel()
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{Users: []string{sentinelRule + " +info +config|get"}, SentinelUsers: []string{watcherRule}, Args: good})
	direct := testenv.Proxies(t, nil)
	for name, dial := range map[string]dialSentinel{"rueidis": sentinelRueidis, "go-redis": sentinelGoRedis} {
		t.Run(name, func(t *testing.T) {
			list := diagnoseWaiting(t, dial(t, s, direct), 0)
			if got := complaints(list); got != "cutoff endangers 1, replicas endangers 1" {
				t.Errorf("not fine: %s", got)
			}
			for _, f := range list {
				if f.Server != "" && f.Server != s.Servers[0].Addr && f.Server != "the primary" {
					t.Errorf("of server %q", f.Server)
				}
			}
			if got := complaints(diagnoseWaiting(t, dial(t, s, direct), 1)); got != "cutoff endangers 1, replicas endangers 1" {
				t.Errorf("with one of two replicas: %s", got)
			}
			if got := complaints(diagnoseWaiting(t, dial(t, s, direct), 2)); got != "" {
				t.Errorf("with all replicas not fine: %s", got)
			}
		})
	}
}
