package redislock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// TestRedissonManyNames: a session that waits for many names, and so listens to many channels, has a
// few connections. Each waiter is woken.
func TestRedissonManyNames(t *testing.T) {
	t.Parallel()
	for client, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis,
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			m := newMixed(t)
			manyNames(t, m, openSession(t, redisson.New(dial(t, m.addr), nil), long))
		})
	}
}

func manyNames(t *testing.T, m *mixed, a driver.Session) {
	const many = 100
	asked, replies := make([]*driver.Request, many), make([]driver.Reply, many)
	for i := range many {
		name := fmt.Sprint("many/", i)
		m.do("HSET", name, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1") // Java has it
		m.do("PEXPIRE", name, "60000")
		asked[i] = exclusive(name)
		replies[i] = acquire(t, a, asked[i])
	}
	// A client's pool may grow while exchanges are slow, but the subscriptions share connections.
	for kind, most := range map[string]int{"pubsub": 4, "normal": many - 1} {
		list, err := m.client.Do(t.Context(), m.client.B().Arbitrary("CLIENT", "LIST", "TYPE", kind).Build()).ToString()
		if n := strings.Count(list, "\n"); err != nil || n > most {
			t.Errorf("%d connections (%s), %v; want at most %d", n, kind, err, most)
		}
	}
	for i, r := range asked {
		m.do("DEL", r.Name)
		m.do("PUBLISH", "redisson_lock__channel:{"+r.Name+"}", "0")
		gets(t, a, r, replies[i])
	}
}
