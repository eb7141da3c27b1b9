package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestMemberWithdraws: who gives back what it has asked a member of a quorum for learns whether that was a grant.
func TestMemberWithdraws(t *testing.T) {
	conn, err := rueidisconn.Dial(testenv.Redis(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	m, err := redislock.NewMember(conn, "hfq:", time.Minute, "one server")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	ctx := within(t, time.Minute)
	if _, err := m.Birth(ctx, true); err != nil {
		t.Fatal(err)
	}
	s, err := m.Join(ctx, driver.SessionConfig{ID: "s", TTL: time.Minute}, redislock.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(within(t, time.Minute)) })
	ask := func(id, name string, mode driver.Mode, granted bool) {
		t.Helper()
		reply, _, err := s.Ask(ctx, &driver.Request{ID: id, Name: name, Mode: mode, N: 1, Wait: true}, 0)
		if err != nil || (reply.Token != 0) != granted {
			t.Fatalf("Ask: %+v, %v", reply, err)
		}
	}
	withdraw := func(id, name string, want bool) {
		t.Helper()
		if had, err := s.Withdraw(ctx, name, id); had != want || err != nil {
			t.Errorf("Withdraw of %s: %t, %v; want %t", id, had, err, want)
		}
	}
	ask("holds", "x", driver.Exclusive, true)
	ask("waits", "x", driver.Exclusive, false)
	ask("waits too", "x", driver.Exclusive, false)
	withdraw("nobody", "x", false)
	withdraw("waits", "x", false)
	withdraw("holds", "x", true) // the next has it
	withdraw("holds", "x", false)
	withdraw("waits too", "x", true)
	ask("reads", "y", driver.Shared, true)
	ask("reads too", "y", driver.Shared, true)
	withdraw("reads", "y", true)
	withdraw("reads", "y", false)
	withdraw("reads too", "y", true)
}
