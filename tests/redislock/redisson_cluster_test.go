package redislock_test

import (
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// TestRedissonMigration: while the keys of a name are at two servers, no script takes those that it
// does not see for deleted.
func TestRedissonMigration(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
	b := redisson.New(dialURL(t, c.URL("")), sameRecords(nil))
	s := openSession(t, b, long)
	for _, kind := range []string{"lock", "reader", "permit"} {
		name := newID()
		ask := map[string]func() *driver.Request{
			"lock":   func() *driver.Request { return exclusive(name) },
			"reader": func() *driver.Request { return reader(name) },
			"permit": func() *driver.Request { return permits(name, 1, 1) },
		}[kind]
		h := granted(t, s, ask())
		r := ask()
		if kind == "reader" {
			r = writer(name)
		}
		reply := acquire(t, s, r)
		tag := "{" + name + "}"
		m := c.Migrate(tag, (c.Owner(tag, 0)+1)%3)
		for _, k := range []string{"l:" + name, "z:" + name, "m:" + name, "t"} {
			m.MoveKey("hf:" + tag + ":" + k)
		}
		changes, err := s.Renew(t.Context(), []driver.Hold{h})
		if err == nil && slices.ContainsFunc(changes, func(c driver.Change) bool { return c.State != driver.Unknown }) {
			t.Errorf("%s: Renew while the keys move: %+v", kind, changes)
		}
		m.End()
		if changes, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) != 0 {
			t.Errorf("%s: Renew: %+v, %v", kind, changes, err)
		}
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Errorf("%s: Release: %v", kind, err)
		}
		if token := gets(t, s, r, reply); token <= h.Token {
			t.Errorf("%s: token %d after %d", kind, token, h.Token)
		}
	}
}

// TestRedissonClusterUnsubscribes: in a Cluster no server keeps a subscription that has ended.
func TestRedissonClusterUnsubscribes(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
	s := openSession(t, redisson.New(dialURL(t, c.URL("")), &redisson.Config{Fair: true}), long)
	name := newID()
	granted(t, s, exclusive(name))
	for range 20 { // each listens on a channel of its own
		r := exclusive(name)
		acquire(t, s, r)
		if err := s.Cancel(t.Context(), name, r.ID); err != nil {
			t.Fatal(err)
		}
	}
	for _, server := range c.Servers {
		j := newJava(t, rawClient(t, server.Addr))
		until(t, "nobody is subscribed at "+server.Addr, func() bool {
			all, err := j.do("PUBSUB", "CHANNELS", "redisson_*").AsStrSlice()
			return err == nil && len(all) == 0
		})
	}
}
