package redislock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestMemberPrefix: a prefix may contain the names of the scripts' constants. A server whose clock
// was set forgets the keys under this prefix, and no others.
func TestMemberPrefix(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for _, prefix := range []string{"hf:CLUSTER:", "LATCH:", "RETAIN-", "x.GRANULE_INTEREST:", "LEAD:QUARANTINE:PREFIX:",
		"SERVERS:", "MARK:NEWBORN"} {
		t.Run(prefix, func(t *testing.T) {
			ctx := within(t, soon)
			m, err := redislock.NewMember(dialRueidis(t, server.Addr), prefix, time.Minute, "a b c", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Close() })
			birth, err := m.Birth(ctx, true)
			if err != nil || birth.Left != 0 {
				t.Fatalf("Birth: %+v, %v", birth, err)
			}
			s, err := m.Join(ctx, driver.SessionConfig{ID: newID(), TTL: long}, redislock.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close(context.Background()) })
			name := newID()
			key := fmt.Sprintf("%s{%02x}:l:%s", prefix, hook.RedisShard(name), name)
			granted(t, s, exclusive(name))
			if got := server.Do("EXISTS " + key); got != ":1" {
				t.Fatalf("EXISTS %s: %s; want 1", key, got)
			}
			if _, err := m.Note(ctx, birth, "12345678", time.Second, true); err != nil {
				t.Fatal(err)
			}
			if got := server.Do("EXISTS " + key); got != ":0" {
				t.Errorf("EXISTS %s after the clock was set: %s; want 0", key, got)
			}
		})
	}
}
