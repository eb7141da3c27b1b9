package redislock_test

import (
	"fmt"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// forger publishes forged messages on the channels of sessions, at the server that has a name. In a
// Cluster these channels belong to shards. believed is false if replicas have to confirm a grant.
func forger(server func(name string) *testenv.RedisServer, tag func(name string) string,
	cluster, believed bool) *drivertest.Forger {
	return &drivertest.Forger{
		Believed: believed,
		Message:  func(id string, token uint64, _ string) string { return fmt.Sprint(id, " ", token) },
		Send: func(t testing.TB, session, name string, messages ...string) {
			t.Helper()
			raw := rawClient(t, server(name).Addr)
			command, channel := "PUBLISH", "hf:s:"+session
			if cluster {
				command, channel = "SPUBLISH", "hf:"+tag(name)+":s:"+session
			}
			all := make([]rueidis.Completed, len(messages))
			for i, m := range messages {
				all[i] = raw.B().Arbitrary(command).Keys(channel).Args(m).Build()
			}
			for _, r := range raw.DoMulti(within(t, soon), all...) {
				n, err := r.AsInt64()
				if err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				if n == 0 && !cluster { // a session of a Cluster is subscribed only for shards in which it waits
					t.Fatalf("no subscriber of %s", channel)
				}
			}
		},
	}
}
