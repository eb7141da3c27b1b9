package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// In a Cluster the connection must lead to the server that has the name, also after its slot has
// moved.
func TestReplicasOfACluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Users: []string{clusterRule + " +wait"}, Down: time.Minute})
	direct := testenv.Proxies(t, nil)
	for what, dial := range map[string]dialCluster{"rueidis": clusterRueidis, "go-redis": clusterGoRedis} {
		b := redislock.New(dial(t, c, direct), &redislock.Config{WaitReplicas: 1, WaitTimeout: 15 * time.Second})
		t.Cleanup(func() { _ = b.Close() })
		s := openSession(t, b, long)
		var held []driver.Hold
		for i := range 20 { // of all servers
			r := exclusive(fmt.Sprint(what, i))
			held = append(held, eventually(t, s, r))
		}
		name := held[0].Name
		m := c.Migrate(tagOf(name), (c.Owner(tagOf(name), 0)+1)%3)
		m.End()
		// The client does not know it yet.
		persist(t, what+": all is renewed", func() error {
			changes, err := s.Renew(within(t, soon), held)
			for _, c := range changes {
				if err = fmt.Errorf("%+v", changes); c.State != driver.Unknown {
					t.Fatalf("%s: Renew: %v", what, err)
				}
			}
			return err
		})
		if err := s.Release(within(t, soon), held[0], 0); err != nil {
			t.Errorf("%s: Release: %v", what, err)
		}
		eventually(t, s, exclusive(name))
		m = c.Migrate(tagOf(name), m.From)
		moved := make(chan struct{})
		timer := time.AfterFunc(300*time.Millisecond, func() { // the request spends a part of it waiting
			defer close(moved)
			m.End()
		})
		t.Cleanup(func() {
			if !timer.Stop() {
				<-moved
			}
		})
		r := exclusive(another(name))
		persist(t, what+": it is granted", func() error {
			reply, err := s.Acquire(within(t, soon), r)
			if err == nil && reply.Token == 0 {
				t.Fatalf("%s: not granted: %+v", what, reply)
			}
			return err
		})
		<-moved
	}
	c.Servers[4].Pause()
	c.Servers[5].Pause()
	c.Servers[3].Pause()
	cfg := &redislock.Config{WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond}
	b := redislock.New(clusterRueidis(t, c, direct), cfg)
	t.Cleanup(func() { _ = b.Close() })
	reply, err := openSession(t, b, long).Acquire(within(t, soon), exclusive("x"))
	unconfirmed(t, reply, err, "only 0 of 1 replicas")
}

// persist calls f until it succeeds. Requests wait for a slot that moves, but on a busy machine the
// client may learn too late where the slot is. An error that comes at once means that f has not waited.
func persist(t testing.TB, what string, f func() error) {
	t.Helper()
	const waited = time.Second / 2 // a program that waits does so for two seconds
	until(t, what, func() bool {
		began := time.Now()
		err := f()
		if took := time.Since(began); err != nil && took < waited {
			t.Fatalf("%s: it failed after %v: %v", what, took, err)
		}
		return err == nil
	})
}
