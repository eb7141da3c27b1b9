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

// checksOf lists which checks were made of which servers, without those of the reach and of server.
// missed are the checks of no certain server that are unknown.
func checksOf(list []driver.Finding, server string) (made, missed []string) {
	for _, f := range list {
		if f.Code != "redis.reach" && f.Server != server {
			made = append(made, f.Code+" "+f.Server)
		}
		if f.Severity == driver.Unclear && f.Server == "" {
			missed = append(missed, f.Code)
		}
	}
	slices.Sort(made)
	slices.Sort(missed)
	return slices.Compact(made), missed
}

// reached lists the findings of the servers' reach.
func reached(list []driver.Finding) (all []string) {
	for _, f := range list {
		if f.Code == "redis.reach" {
			all = append(all, f.Server+" "+f.Severity.String())
		}
	}
	return all
}

// allKnown returns a Conn that leads to all servers, whichever of them the client asks for the others. The
// servers of a young Cluster do not list its replicas.
func allKnown(t testing.TB, c *testenv.RedisClusterServers, dial dialCluster, p *testenv.TCPProxies) redislock.Conn {
	t.Helper()
	for ctx := within(t, long); ; {
		conn := dial(t, c, p)
		all := redislock.Ask(ctx, conn.(redislock.Asker), "CLUSTER", "SLOTS")
		if len(all) == len(c.Servers) && !slices.ContainsFunc(all, func(a redislock.Answer) bool {
			return a.Err != nil || slices.ContainsFunc(a.Value.List, func(slots redislock.Value) bool {
				return len(slots.List) < 4 // first, last, primary, replica
			})
		}) {
			return conn
		}
		select {
		case <-time.After(100 * time.Millisecond): // there is no event for it
		case <-ctx.Done():
			t.Fatal("the client does not find all servers")
		}
	}
}

// TestDoctorFrozenServer: one server of a Cluster does not answer. All checks of the others are made, and
// only those that need this server are unknown.
func TestDoctorFrozenServer(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Args: good, Down: time.Hour})
	direct := testenv.Proxies(t, nil)
	scripts, wakeups := c.Owner(tagOf("holdfast doctor"), 0), c.Owner("{00}", 0)
	other := 0
	for other == scripts || other == wakeups {
		other++
	}
	diagnose := func(t *testing.T, conn redislock.Conn) []driver.Finding {
		b := redislock.New(conn, nil)
		t.Cleanup(func() { _ = b.Close() })
		list, err := b.Diagnose(within(t, 2*long), 15*time.Second)
		if err != nil {
			t.Error(err)
		}
		return list
	}
	for name, dial := range map[string]dialCluster{"rueidis": anonymousRueidis, "go-redis": anonymousGoRedis} {
		for _, victim := range []int{other, scripts} {
			what := name + ", a server that one check needs"
			missed := []string{"redis.records"}
			if victim == scripts {
				what, missed = name+", a server that several checks need", append(missed, "redis.scripts")
			}
			if victim == wakeups {
				missed = append(missed, "redis.wakeups")
			}
			t.Run(what, func(t *testing.T) {
				c.Ready() // a replica of the last victim may have given it up
				conn := allKnown(t, c, dial, direct)
				frozen := c.Servers[victim]
				want, _ := checksOf(diagnose(t, conn), frozen.Addr)
				want = slices.DeleteFunc(want, func(check string) bool { return check == "redis.slots " })
				frozen.Pause()
				defer frozen.Continue()
				var list []driver.Finding
				for range 3 { // another server seems to be silent if the machine stands still for seconds
					if list = diagnose(t, conn); len(reached(list)) == 1 {
						break
					}
				}
				if got := reached(list); !slices.Equal(got, []string{frozen.Addr + " slows"}) {
					t.Errorf("no answer of %q, want of %s", got, frozen.Addr)
				}
				got, open := checksOf(list, frozen.Addr)
				if !slices.Equal(got, want) {
					t.Errorf("made the checks\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				if !slices.Equal(open, missed) {
					t.Errorf("unknown: %q, want %q", open, missed)
				}
				if !slices.ContainsFunc(list, func(f driver.Finding) bool { // only it knows of its moves
					return f.Code == "redis.slots" && f.Server == frozen.Addr && f.Severity == driver.Unclear && f.MayEndanger
				}) {
					t.Errorf("its slots are not unknown: %+v", list)
				}
			})
		}
	}
}

// marked waits until the first server lists one with these flags.
func marked(t testing.TB, c *testenv.RedisClusterServers, server *testenv.RedisServer, flags string) {
	t.Helper()
	ask := dialRueidis(t, c.Servers[0].Addr)
	until(t, "the server is marked as "+flags, func() bool {
		for _, a := range redislock.Ask(within(t, soon), ask.(redislock.Asker), "CLUSTER", "NODES") {
			for line := range strings.Lines(a.Value.Text) {
				if strings.Contains(line, " "+server.Addr+"@") && strings.Contains(line, " "+flags+" ") {
					return true
				}
			}
		}
		return false
	})
}

// TestDoctorFailedServer: clients do not lead to a server that the Cluster has marked as failed. The report
// mentions it all the same.
func TestDoctorFailedServer(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Args: good})
	direct := testenv.Proxies(t, nil)
	failed := c.Replica(0)
	failed.Pause()
	defer failed.Continue()
	marked(t, c, failed, "slave,fail")
	for name, dial := range map[string]dialCluster{"rueidis": anonymousRueidis, "go-redis": anonymousGoRedis} {
		t.Run(name, func(t *testing.T) {
			b := redislock.New(dial(t, c, direct), nil)
			t.Cleanup(func() { _ = b.Close() })
			until(t, "the doctor mentions the failed server alone", func() bool { // others may be found, or stand still
				list, err := b.Diagnose(within(t, 2*long), 15*time.Second)
				return err == nil && slices.Equal(reached(list), []string{failed.Addr + " slows"})
			})
		})
	}
}

// TestDoctorFailedOwner: the Cluster has marked a primary without replicas as failed. Only this one knows whether
// its slots are moving. Clients that ask for CLUSTER SLOTS lead to it; those that ask for CLUSTER SHARDS do not.
func TestDoctorFailedOwner(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Down: time.Second,
		Args: append([]string{"--cluster-require-full-coverage", "no"}, good...)})
	direct := testenv.Proxies(t, nil)
	failed := c.Servers[1]
	failed.Pause()
	defer failed.Continue()
	marked(t, c, failed, "master,fail")
	shards := func(t testing.TB, c *testenv.RedisClusterServers, p *testenv.TCPProxies) redislock.Conn {
		opt := likeDial(p)
		opt.Username, opt.Password, opt.ClusterOption.PreferClusterShards = "", "", true
		return rueidisTo(t, c, opt)
	}
	for name, dial := range map[string]dialCluster{"shards": shards, "slots": anonymousRueidis} {
		t.Run(name, func(t *testing.T) {
			b := redislock.New(dial(t, c, direct), nil)
			t.Cleanup(func() { _ = b.Close() })
			var got []string
			until(t, "the doctor reports the failed server alone", func() bool { // others may stand still
				list, err := b.Diagnose(within(t, 2*long), 15*time.Second)
				got = nil
				for _, f := range list {
					if f.Code == "redis.slots" {
						got = append(got, fmt.Sprint(f.Server, " ", f.Severity, " ", f.MayEndanger))
					}
				}
				return err == nil && slices.Equal(reached(list), []string{failed.Addr + " slows"})
			})
			if want := []string{failed.Addr + " unknown true"}; !slices.Equal(got, want) {
				t.Errorf("slots: %q, want %q", got, want)
			}
		})
	}
}
