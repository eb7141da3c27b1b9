package rueidisconn_test

import (
	"os"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.RunShared(m)) }

var (
	one   = testenv.Shared(func(t testing.TB) *testenv.RedisServer { return testenv.Redis(t) })
	three = testenv.Shared(func(t testing.TB) (all [3]*testenv.RedisServer) {
		for i := range all {
			all[i] = testenv.Redis(t)
		}
		return all
	})
)

// redisURL and the other functions are for examples.
func redisURL() string { return testenv.ForExample(one).URL() }

func threeServers() (addrs []string) {
	for _, s := range testenv.ForExample(three) {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

func failOne() { testenv.ForExample(three)[2].Kill() }
