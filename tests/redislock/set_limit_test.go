package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// The key of a limit that is set never expires. Once the limit is removed, the key lives as long as
// the leases that it protects.
func TestKeyOfALimit(t *testing.T) {
	const lease = 20 * time.Minute
	server := testenv.Redis(t)
	client, ctx := rawClient(t, server.Addr), within(t, time.Minute)
	b := redislock.New(rueidisconn.New(client), &redislock.Config{Prefix: "limit:"})
	s := openSession(t, b, lease)
	left := func() time.Duration {
		t.Helper()
		keys, err := client.Do(ctx, client.B().Keys().Pattern("limit:*:l:s").Build()).AsStrSlice()
		if err != nil || len(keys) != 1 {
			t.Fatalf("the key: %q, %v", keys, err)
		}
		ms, err := client.Do(ctx, client.B().Pttl().Key(keys[0]).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ms) * time.Millisecond
	}
	set := func(n int) {
		t.Helper()
		if err := b.SetLimit(ctx, "s", n); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{3, 2} {
		set(n)
		if d := left(); d > 0 {
			t.Errorf("the limit is forgotten in %v", d)
		}
	}
	h := driver.Hold{Name: "s", ID: newID()}
	reply, err := s.Acquire(ctx, &driver.Request{ID: h.ID, Name: "s", Mode: driver.Permits, N: 1})
	if err != nil || reply.Token == 0 {
		t.Fatalf("Acquire: %+v, %v", reply, err)
	}
	if d := left(); d > 0 {
		t.Errorf("the limit is forgotten in %v", d)
	}
	set(0)
	if d := left(); d < lease {
		t.Errorf("the key of a lease of %v lives for %v", lease, d)
	}
	h.Token = reply.Token
	if err := s.Release(ctx, h, 0); err != nil {
		t.Fatal(err)
	}
	if d := left(); d <= 0 || d > lease {
		t.Errorf("the key of an unused name lives for %v", d)
	}
}

// The tokens of a name grow although its record has expired, its limit is set since, and the clock
// was set back in between.
func TestTokensAfterALimit(t *testing.T) {
	s := newStepped(t, server, testenv.Redis(t).Addr)
	ask := func(limit int) driver.Hold {
		t.Helper()
		h := driver.Hold{Name: "s", ID: newID()}
		reply, err := s.a.Acquire(s.ctx, &driver.Request{ID: h.ID, Name: "s", Mode: driver.Permits, N: 1, Limit: limit})
		if err != nil || reply.Token == 0 {
			t.Fatalf("Acquire: %+v, %v", reply, err)
		}
		h.Token = reply.Token
		return h
	}
	s.later(t, time.Hour)
	before := ask(1)
	if err := s.a.Release(s.ctx, before, 0); err != nil {
		t.Fatal(err)
	}
	keys, err := s.do(t, "KEYS", "hf:*:s").AsStrSlice()
	if err != nil || len(keys) == 0 {
		t.Fatalf("the keys of the name: %q, %v", keys, err)
	}
	s.do(t, append([]string{"DEL"}, keys...)...)
	s.later(t, -time.Hour)
	if err := s.SetLimit(s.ctx, "s", 1); err != nil {
		t.Fatal(err)
	}
	if h := ask(0); h.Token <= before.Token {
		t.Errorf("token %d after %d", h.Token, before.Token)
	}
}
