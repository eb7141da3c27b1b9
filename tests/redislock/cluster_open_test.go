package redislock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestOpenWithoutOneServer: a server of a Cluster is killed or frozen, and nothing takes over. Each session opens, and
// uses the locks of the others. Without any server none does.
func TestOpenWithoutOneServer(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Down: time.Second,
		Args: []string{"--cluster-require-full-coverage", "no"}})
	direct := testenv.Proxies(t, nil)
	b := map[string]*redislock.Backend{}
	for name, dial := range map[string]dialCluster{"rueidis": anonymousRueidis, "go-redis": anonymousGoRedis} {
		b[name] = redislock.New(dial(t, c, direct), nil)
		t.Cleanup(func() { _ = b[name].Close() })
	}
	opened := func(client, id string) error {
		s, err := b[client].Open(within(t, long), driver.SessionConfig{ID: id, TTL: time.Minute})
		if err != nil {
			return err
		}
		return s.Close(t.Context())
	}
	away := c.Servers[1]
	for what, f := range map[string]func() (undo func()){
		"killed": func() func() { away.Kill(); return away.Start },
		"frozen": func() func() { away.Pause(); return away.Continue },
	} {
		undo := f()
		for client := range b {
			for i := range 12 {
				if err := opened(client, fmt.Sprint(what, i)); err != nil {
					t.Errorf("%s, %s: %v", client, what, err)
				}
			}
		}
		undo()
		c.Ready()
	}
	for _, server := range c.Servers {
		server.Kill()
	}
	if err := opened("rueidis", "none"); !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("no server: %v", err)
	}
}
