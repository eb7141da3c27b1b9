package redislock_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
)

// key returns a key of the name x. what: as in layout.go.
func (*blocksAt) key(what string) string {
	tag := fmt.Sprintf("hf:{%02x}:", hook.RedisShard("x"))
	if what == "t" {
		return tag + what
	}
	return tag + what + ":x"
}

func (x *blocksAt) do(words ...string) string {
	x.Helper()
	text, err := x.client.Do(within(x, soon), x.client.B().Arbitrary(words...).Build()).ToAny()
	if err != nil && text != nil {
		x.Fatal(err)
	}
	s, _ := text.(string)
	return s
}

// after gives h, a grant, the token last.
func (x *blocksAt) after(last uint64, h driver.Hold) driver.Hold {
	x.Helper()
	x.do("SETRANGE", x.key("l"), "2", fmt.Sprintf("%016d", last))
	h.Token = last
	return h
}

// tokenAfter returns the token of a grant that may take n, at now, after last.
func tokenAfter(now, last, n uint64) uint64 {
	all, one := max(now, last+n), max(now, last+1)
	all += all % 2
	switch {
	case n == 1:
		return one
	case all <= now+ahead:
		return all
	}
	return one + 1 - one%2
}

// TestBlocksOnEachPath: the clock, the last token and the request decide which token a grant has, to the
// microsecond, whichever script makes it.
func TestBlocksOnEachPath(t *testing.T) {
	t.Parallel()
	const border = 1_700_000_010_000_000 // of a granule
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	x := newBlocksAt(t)
	other := openSession(t, x.b, long)
	cancel := func(id string) error { return x.Cancel(within(t, soon), "x", id) }
	one := func(s driver.Session) driver.Hold { return granted(t, s, x.ask(1)) }
	free := func(rounds int) func(last uint64, r *driver.Request) uint64 {
		return func(last uint64, r *driver.Request) uint64 {
			s, err := x.b.Open(within(t, soon), driver.SessionConfig{ID: newID(), TTL: long, Info: "{}"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close(within(t, soon)) }()
			for range rounds {
				if err := cancel(one(s).ID); err != nil {
					t.Fatal(err)
				}
			}
			x.release(x.after(last, one(x)))
			return granted(t, s, r).Token
		}
	}
	handOver := func(end func(h driver.Hold) error) func(last uint64, r *driver.Request) uint64 {
		return func(last uint64, r *driver.Request) uint64 {
			h := x.after(last, one(x))
			reply := acquire(t, other, r)
			if err := end(h); err != nil {
				t.Fatal(err)
			}
			return woken(t, reply)
		}
	}
	paths := map[string]func(last uint64, r *driver.Request) uint64{
		"acquire": free(0),
		"take":    free(2), // now the session tries the fast path
		"release": handOver(func(h driver.Hold) error { return x.Release(within(t, soon), h, 0) }),
		"cancel":  handOver(func(h driver.Hold) error { return cancel(h.ID) }),
		"break":   handOver(func(h driver.Hold) error { return x.b.Break(within(t, soon), "x", h.Token) }),
	}
	pick := func(from ...int64) int64 { return from[rng.IntN(len(from))] }
	for range 150 {
		n := pick(1, 2, 3, 64, driver.MaxTokens, driver.MaxCallBackTokens-1, driver.MaxCallBackTokens)
		now := border - pick(5_000_000, 4_999_999, 0, 1, n, ahead, ahead+1, -1)
		last := now + pick(-4_000_000, -n, 0, ahead-n, ahead, 1_000_000, 3_600_000_000) + pick(-2, -1, 0, 1, 2)
		for how, path := range paths {
			x.set(uint64(now))
			r := x.ask(int(n))
			got, want := path(uint64(last), r), tokenAfter(uint64(now), uint64(last), uint64(n))
			if got != want {
				t.Errorf("seed %d: %s: %d tokens at %d, after %+d: %+d; want %+d", seed, how, n, now, last-now,
					int64(got)-now, int64(want)-now)
			}
			if err := cancel(r.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBlocksAreLost: a server that has lost some grants, or all, gives none of their tokens again when its
// clock is 40 ms later than at the last of them.
func TestBlocksAreLost(t *testing.T) {
	t.Parallel()
	const granule = 10_000_000
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 2))
	x := newBlocksAt(t)
	other := openSession(t, x.b, long)
	var step int // the longest time between two grants
	grant := func() (first uint64) {
		n := []int{1, 2, 64, driver.MaxTokens, driver.MaxCallBackTokens, driver.MaxCallBackTokens}[rng.IntN(6)]
		x.set(x.clock + 5 + uint64(rng.IntN(step))) // a grant takes a server longer
		r := x.ask(n)
		h := driver.Hold{Name: "x", ID: r.ID}
		if rng.IntN(3) == 0 {
			h = granted(t, x, r)
		} else {
			before := granted(t, x, x.ask(1))
			reply := acquire(t, other, r)
			x.release(before)
			h.Token = woken(t, reply)
		}
		k := uint64(r.Granted(h.Token, x.b.Kinds()))
		if h.Token < x.last+k {
			t.Fatalf("seed %d: %d tokens up to %d, after %d", seed, k, h.Token, x.last)
		}
		x.last = h.Token
		if err := x.Cancel(within(t, soon), "x", h.ID); err != nil {
			t.Fatal(err)
		}
		return h.Token - k + 1
	}
	for round := range 100 {
		x.do("DEL", x.key("l"), x.key("z"), x.key("m"), x.key("t"))
		now := uint64(1_700_000_000_000_000) + uint64(10*round*granule+rng.IntN(granule))
		if rng.IntN(3) == 0 {
			now += granule - now%granule - uint64(rng.IntN(100_000)) // the granule ends soon
		}
		x.set(now)
		step = []int{100, 1000, 10_000, 60_000}[rng.IntN(4)]
		for range rng.IntN(8) {
			grant()
		}
		known := map[string]string{"l": x.do("GET", x.key("l")), "t": x.do("GET", x.key("t"))}
		for range 1 + rng.IntN(12) {
			grant()
		}
		lost := x.last
		x.do("DEL", x.key("l"), x.key("z"), x.key("m"), x.key("t"))
		for key, value := range known {
			if value != "" && rng.IntN(4) > 0 {
				x.do("SET", x.key(key), value)
			}
		}
		x.last = 0
		x.set(x.clock + 40_000 - 5)
		for step = 1; step < 4; step++ {
			if first := grant(); first <= lost {
				t.Errorf("seed %d, round %d: token %d after %d, which was lost", seed, round, first, lost)
			}
		}
	}
}
