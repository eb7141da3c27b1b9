package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// forger publishes at all servers, with the clock of each.
func (g *group) forger() *drivertest.Forger {
	return &drivertest.Forger{
		Believed: true,
		Message: func(id string, token uint64, _ string) string {
			return fmt.Sprint(id, " ", token, " ", time.Now().UnixMicro())
		},
		Send: func(t testing.TB, session, _ string, messages ...string) {
			t.Helper()
			for _, s := range g.servers {
				raw, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true,
					DisableCache: true, PipelineMultiplex: -1, ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(raw.Close)
				all := make([]rueidis.Completed, len(messages))
				for i, m := range messages {
					all[i] = raw.B().Publish().Channel(quorum.DefaultPrefix + "s:" + session).Message(m).Build()
				}
				for _, r := range raw.DoMulti(within(t), all...) {
					if n, err := r.AsInt64(); n == 0 || err != nil {
						t.Fatalf("no subscriber: %v", err)
					}
				}
			}
		},
	}
}
