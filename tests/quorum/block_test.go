package quorum_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestBlockOfAYieldedGrant: a request that has given way waits for as many tokens as before, and a
// waiter that gets the name by that has its own number.
func TestBlockOfAYieldedGrant(t *testing.T) {
	t.Parallel()
	g := start(t, 3, 3*time.Minute)
	m := member(t, g, 0)
	s, err := m.Join(within(t), driver.SessionConfig{ID: "s", TTL: time.Minute, Info: driver.Info{Host: "h"}.String()},
		redislock.Hooks{Pushed: func(string) {}, Claimed: func(string, int, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(within(t)) }()
	ask := func(id string, block int) driver.Reply {
		t.Helper()
		r := try("x", id)
		r.Wait, r.Tokens = true, block
		reply, _, err := s.Ask(within(t), r, 0)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	heard := func(wake <-chan uint64, last uint64, block int) uint64 {
		t.Helper()
		select {
		case token := <-wake:
			if token < last+uint64(block) {
				t.Errorf("token %d, of a block of %d, after %d", token, block, last)
			}
			return token
		case <-within(t).Done():
			t.Fatal("no push")
		}
		return 0
	}
	// More tokens in a row than microseconds can pass: each block counts from the one before.
	const rounds = 60
	last := ask("a", driver.MaxTokens).Token
	b := ask("b", 300)
	for range rounds {
		wake, _, err := s.Yield(within(t), driver.Hold{Name: "x", ID: "a", Token: last}, "b", 0, driver.MaxTokens)
		if err != nil {
			t.Fatal(err)
		}
		last = heard(b.Wake, last, 300)
		if b.Wake, _, err = s.Yield(within(t), driver.Hold{Name: "x", ID: "b", Token: last}, "a", 0, 300); err != nil {
			t.Fatal(err)
		}
		last = heard(wake, last, driver.MaxTokens)
	}
}
