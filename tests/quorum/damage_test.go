package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// record returns the key of a name's record.
func (g *group) record(name string) string {
	g.t.Helper()
	for _, s := range g.servers {
		for shard := range 64 {
			if key := fmt.Sprintf("%s{%02x}:l:%s", quorum.DefaultPrefix, shard, name); s.Do("EXISTS "+key) == ":1" {
				return key
			}
		}
	}
	g.t.Fatalf("no server has a record of %q", name)
	return ""
}

// retype gives a key another type, in one step: a session may be about to write the key.
func retype(t testing.TB, s *testenv.RedisServer, key string) {
	t.Helper()
	const script = `EVAL "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'spoilt')" 1 `
	if reply := s.Do(script + key); reply != ":1" {
		t.Fatal(reply)
	}
}

// TestOneDamaged: a record that is damaged at a minority of the servers blocks nothing.
func TestOneDamaged(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	a, b := open(t, g.backend(g.addrs()), "a", time.Minute), open(t, g.backend(g.addrs()), "b", time.Minute)
	other := get(t, a, try("y", "a-y"))
	h := get(t, a, try("x", "a-x"))
	g.everywhere(t, "x", renewals(t, a, other, h))
	g.everywhere(t, "z", renewals(t, b, get(t, b, try("z", "b-z")))) // it is connected to all servers, too
	retype(t, g.servers[1], g.record("x"))

	stands(t, a, 1, other, h)
	if reply, err := b.Acquire(within(t), try("x", "b-1")); err != nil || reply.Token != 0 {
		t.Errorf("Acquire of a lock that is held: %+v, %v", reply, err)
	}
	r := try("x", "b-2")
	r.Wait = true
	reply, err := b.Acquire(within(t), r)
	if err != nil || reply.Wake == nil {
		t.Fatalf("Acquire: %+v, %v; want a place in the queue", reply, err)
	}
	back := g.backend(g.addrs())
	if rec, err := back.Inspect(within(t), "x"); err != nil || len(rec.Holders) != 1 || rec.Waiting != 1 {
		t.Errorf("Inspect: %+v, %v", rec, err)
	}
	if list, err := back.List(within(t), "", "", 10); err != nil || len(list) != 3 ||
		list[0].Damaged+list[1].Damaged+list[2].Damaged != "" {
		t.Errorf("List: %+v, %v", list, err)
	}
	if err := a.Release(within(t), h, 0); err != nil {
		t.Errorf("Release: %v", err)
	}
	select {
	case token := <-reply.Wake:
		if token <= h.Token {
			t.Errorf("token %d after %d", token, h.Token)
		}
	case <-time.After(20 * time.Second): // a third of the TTL
		t.Error("the waiter is not served")
	}
}
