package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// damagedKeys are ways in which another program may damage the keys of the name x, which has a
// holder and a waiter. @ stands for the name's part of the key.
var damagedKeys = map[string][]string{
	"the state is a list":               {"DEL l@", "RPUSH l@ a"},
	"the state is a number":             {"SET l@ 5"},
	"the state is cut short":            {"SETRANGE l@ 0 X0", "SET l@ X01234"},
	"a letter among the digits":         {"SETRANGE l@ 40 z"},
	"a letter in the token":             {"SETRANGE l@ 7 z"},
	"another kind":                      {"SETRANGE l@ 0 Q"},
	"a token that is too large":         {"SETRANGE l@ 2 9007199254740992"},
	"the largest token that fits":       {"SETRANGE l@ 2 9999999999999999"},
	"the queue is a string":             {"SET z@ a"},
	"the records are a string":          {"SET m@ a"},
	"a record of a waiter is none":      {"HSET m@ wID a"},
	"a record of a waiter is longer":    {"HSET m@ wID 0000000000000000000000000000000000000000000000000000000000000000000000000000x"},
	"a number of the queue is a letter": {"HSET m@ s a"},
}

// TestDamaged: one name is damaged. Only that name is reported as damaged, with its key. Other
// names are granted, renewed, handed over and listed as usual.
func TestDamaged(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for what, commands := range damagedKeys {
		for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
			t.Run(fmt.Sprint(what, ", ", mode), func(t *testing.T) {
				server.Do("FLUSHALL")
				a, _ := session(t, server.URL(), long)
				b, _ := session(t, server.URL(), long)
				_, back := session(t, server.URL(), long)
				ctx := within(t, long)
				h := granted(t, a, &driver.Request{ID: newID(), Name: "x", Mode: mode, N: 1})
				var holds []driver.Hold
				sane := map[string]driver.Reply{}
				asked := map[string]*driver.Request{}
				for i := range 8 {
					name := fmt.Sprint("sane", i)
					holds = append(holds, granted(t, a, &driver.Request{ID: newID(), Name: name,
						Mode: driver.Exclusive + driver.Mode(i%2), N: 1}))
					asked[name] = exclusive(name)
					sane[name] = acquire(t, b, asked[name])
				}
				r := exclusive("x")
				acquire(t, b, r)
				places := []driver.Hold{{Name: "x", ID: r.ID}}
				for name, r := range asked {
					places = append(places, driver.Hold{Name: name, ID: r.ID})
				}
				for _, c := range commands {
					c = strings.NewReplacer("ID", r.ID, "l@", "hf:#:l:x", "z@", "hf:#:z:x", "m@", "hf:#:m:x").Replace(c)
					c = strings.ReplaceAll(c, "#", fmt.Sprintf("{%02x}", hook.RedisShard("x")))
					if got := server.Do(c); strings.HasPrefix(got, "-") {
						t.Fatalf("%s: %s", c, got)
					}
				}
				damaged := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), " hf:{") ||
						strings.Contains(err.Error(), "user_script") {
						t.Errorf("%s: %v; want an error that names the key", what, err)
					}
				}
				if _, err := back.Inspect(ctx, "x"); !strings.Contains(what, "number of the queue") {
					damaged("Inspect", err)
				}
				// A new request reads no other waiter's record.
				if _, err := a.Acquire(ctx, exclusive("x")); !strings.Contains(what, "record of a waiter") {
					damaged("Acquire", err)
				}
				for _, in := range []struct {
					s     driver.Session
					holds []driver.Hold
				}{{a, append([]driver.Hold{h}, holds...)}, {b, places}} {
					changes, err := in.s.Renew(ctx, in.holds)
					if err != nil {
						t.Fatalf("Renew: %v", err)
					}
					for _, c := range changes {
						if c.Index > 0 && c.State != driver.Waiting || c.Index == 0 && c.State == driver.Granted {
							t.Errorf("Renew: %+v", c)
						}
					}
				}
				if err := a.Release(ctx, h, 0); !strings.Contains(what, "number of the queue") {
					damaged("Release", err)
				}
				for i, h := range holds {
					if err := a.Release(ctx, h, 0); err != nil {
						t.Errorf("Release: %v", err)
					}
					if token := woken(t, sane[h.Name]); token <= h.Token {
						t.Errorf("%d: token %d after %d", i, token, h.Token)
					}
				}
				if _, err := b.Acquire(ctx, exclusive("new")); err != nil {
					t.Errorf("Acquire of another: %v", err)
				}
			})
		}
	}
}

// TestDamagedShard: damaged keys that serve all names of a shard harm none of the names.
func TestDamagedShard(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	shard := fmt.Sprintf("hf:{%02x}", hook.RedisShard("x"))
	for what, command := range map[string]string{
		"floor of another type": "HSET " + shard + ":t a b",
		"no floor":              "SET " + shard + ":t x",
		"a floor too high":      "SET " + shard + ":t 99999999999999999999999999999999",
		"index of another type": "SET " + shard + ":i x",
	} {
		t.Run(what, func(t *testing.T) {
			server.Do("FLUSHALL")
			server.Do(command)
			s, _ := session(t, server.URL(), long)
			ctx := within(t, soon)
			last := uint64(0)
			for range 3 {
				h := granted(t, s, exclusive("x"))
				if h.Token <= last || h.Token >= 1<<53 {
					t.Errorf("token %d after %d", h.Token, last)
				}
				last = h.Token
				if err := s.Release(ctx, h, 0); err != nil {
					t.Fatal(err)
				}
			}
			if ok, err := s.SetCount(context.Background(), "latch", 1); !ok || err != nil {
				t.Errorf("SetCount: %v, %v", ok, err)
			}
		})
	}
}
