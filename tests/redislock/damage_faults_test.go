package redislock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// refusals are the ways in which a server answers and takes no writes.
func refusals(server func() *testenv.RedisServer) map[string]func(testing.TB) func() {
	set := func(t testing.TB, command string) {
		t.Helper()
		if reply := server().Do(command); !strings.HasPrefix(reply, "+OK") {
			t.Fatalf("%s: %s", command, reply)
		}
	}
	both := func(harm, heal string) func(testing.TB) func() {
		return func(t testing.TB) func() {
			t.Helper()
			set(t, harm)
			return func() { set(t, heal) }
		}
	}
	return map[string]func(testing.TB) func(){
		"readonly":   both("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
		"noreplicas": both("CONFIG SET min-replicas-to-write 9", "CONFIG SET min-replicas-to-write 0"),
		"oom":        both("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
	}
}

// refusalsOf are refusals of several servers at once. A server that became a replica would move its
// slots elsewhere. In a Cluster an Inspect writes, to see whether a slot is moving. So only a
// server whose memory is full answers reads.
func refusalsOf(servers []*testenv.RedisServer, ways ...string) map[string]func(testing.TB) func() {
	all := map[string]func(testing.TB) func(){}
	for _, way := range ways {
		all[way] = func(t testing.TB) func() {
			var heals []func()
			for _, s := range servers {
				heals = append(heals, refusals(func() *testenv.RedisServer { return s })[way](t))
			}
			return func() {
				for _, heal := range heals {
					heal()
				}
			}
		}
	}
	return all
}

// damages are ways to damage the state of a name. server is the one that has a name.
func damages(server func(name string) *testenv.RedisServer, tag func(name string) string,
) map[string]func(testing.TB, string) {
	spoil := func(command string) func(testing.TB, string) {
		return func(t testing.TB, name string) {
			t.Helper()
			key := fmt.Sprintf("hf:%s:l:%s", tag(name), name)
			raw := rawClient(t, server(name).Addr)
			for _, c := range []string{"DEL", command} {
				words := strings.Fields(c)
				cmd := raw.B().Arbitrary(words[0]).Keys(key).Args(words[1:]...).Build()
				if err := raw.Do(t.Context(), cmd).Error(); err != nil {
					t.Fatalf("%s %s: %v", c, key, err)
				}
			}
		}
	}
	return map[string]func(testing.TB, string){
		"a list": spoil("RPUSH x"), "text": spoil("SET nonsense"), "cut short": spoil("SET X1"),
	}
}
