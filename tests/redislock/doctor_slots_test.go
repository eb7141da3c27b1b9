package redislock_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestDoctorMovingSlot: both servers of a moving slot report it, and it is no finding once it has
// arrived. If the doctor's own requests get no answer meanwhile, the report continues.
func TestDoctorMovingSlot(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Args: good, Down: time.Minute})
	direct := testenv.Proxies(t, nil)
	tag := tagOf("holdfast doctor")
	for name, dial := range map[string]dialCluster{"rueidis": anonymousRueidis, "go-redis": anonymousGoRedis} {
		t.Run(name, func(t *testing.T) {
			conn := allKnown(t, c, dial, direct)
			from := c.Owner(tag, 0)
			to := (from + 1) % 3
			const still = "cutoff endangers 3, replicas endangers 3"
			if got := complaints(diagnoseWaiting(t, conn, 0)); got != still {
				t.Errorf("before the move: %s", got)
			}
			m := c.Migrate(tag, to)
			list := diagnoseWaiting(t, conn, 0)
			m.End()
			if got := complaints(list); got != still+", slots endangers 2" {
				t.Errorf("during the move: %s", got)
			}
			for server, word := range map[int]string{from: " to node ", to: " here from node "} {
				if !slices.ContainsFunc(list, func(f driver.Finding) bool {
					return f.Code == "redis.slots" && f.Server == c.Servers[server].Addr && strings.Contains(f.Found, word)
				}) {
					t.Errorf("server %d does not say%s: %+v", server, word, list)
				}
			}
			after := diagnoseWaiting(t, conn, 0)
			if got := complaints(after); got != still {
				t.Errorf("after the move: %s", got)
			}
			if !slices.ContainsFunc(after, func(f driver.Finding) bool {
				return f.Code == "redis.slots" && f.Severity == driver.Fine
			}) {
				t.Errorf("after the move nothing is said of slots: %+v", after)
			}
		})
	}
}
