package redislock_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// TestConformanceRedisson runs the suite with Redisson's keys beside the record of each name.
func TestConformanceRedisson(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "--appendonly", "yes")
	h := harness(server, nil, dialRueidis)
	h.Open = proxied(server.Addr, func(t testing.TB, addr string) driver.Backend {
		return redisson.New(dialRueidis(t, addr), nil)
	})
	drivertest.Run(t, h)
}
