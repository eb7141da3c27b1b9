package redislock_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// What other programs keep under a name is described, with every client and in a Cluster. A user who
// may not look is refused.
func TestNeighbors(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{aclRule})
	server.Do("SET job secretvalue EX 3600")
	server.Do("HSET lock:job id 1")
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis} {
		b := redislock.New(dial(t, server.Addr), nil)
		t.Cleanup(func() { _ = b.Close() })
		got, err := b.Neighbors(within(t, soon), "job")
		if err != nil || len(got) != 2 || !strings.HasPrefix(got[0], `key "job" (string, expires in `) ||
			got[1] != `key "lock:job" (hash, never expires)` {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if got, err := b.Neighbors(within(t, soon), "other"); err != nil || len(got) != 0 {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	b := redislock.New(dialURL(t, "redis://holdfast:secret@"+server.Addr), nil)
	t.Cleanup(func() { _ = b.Close() })
	if got, err := b.Neighbors(within(t, soon), "job"); !errors.Is(err, fs.ErrPermission) || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNeighborsInACluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
	// The braces put the key where Owner says.
	const name = "{20}job"
	c.Servers[c.Owner("{20}", 0)].Do("SET " + name + " x")
	b := redislock.New(dialURL(t, c.URL("")), nil)
	t.Cleanup(func() { _ = b.Close() })
	got, err := b.Neighbors(within(t, soon), name)
	if want := []string{`key "` + name + `" (string, never expires)`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}
