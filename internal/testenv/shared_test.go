package testenv

import (
	"os"
	"testing"
)

// Tests share one server, which ends after all of them.
func TestShared(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts a server")
	}
	redis := Shared(func(t testing.TB) *RedisServer { return Redis(t) })
	var first *RedisServer
	t.Run("first", func(t *testing.T) { first = redis(t) })
	t.Run("second", func(t *testing.T) {
		second := redis(t)
		if second != first || second.Do("PING") != "+PONG" {
			t.Errorf("another server, or no answer: %s", second.Addr)
		}
	})
	t.Run("example", func(t *testing.T) {
		if third := ForExample(redis); third != first {
			t.Errorf("another server for examples: %s", third.Addr)
		}
	})
	if t.Failed() || first == nil {
		return
	}
	endShared()
	if _, ended := first.Ended(); !ended {
		t.Error("the server runs after all tests")
	}
	if _, err := os.Stat(first.data); err == nil {
		t.Error("its folder still exists")
	}
}
