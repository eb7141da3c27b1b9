package goredisconn_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Suite{M: m}) }

var one = testenv.Shared(func(t testing.TB) *testenv.RedisServer { return testenv.Redis(t) })

// redisAddr is for examples.
func redisAddr() string { return testenv.ForExample(one).Addr }
