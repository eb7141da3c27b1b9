package quorum_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// again repeats a call while connections that broke are noticed.
func again(t testing.TB, what string, call func() error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := call()
		if err == nil {
			return
		}
		if !passing(err) || time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func add(t testing.TB, b driver.Backend, name, text string) {
	t.Helper()
	again(t, "AddHistory", func() error { return b.AddHistory(within(t), name, text, 100) })
}

func textsOf(t testing.TB, b driver.Backend, name string) (texts []string) {
	t.Helper()
	var entries []driver.Entry
	again(t, "History", func() (err error) {
		entries, err = b.History(within(t), name)
		return err
	})
	for _, e := range entries {
		texts = append(texts, e.Text)
	}
	return texts
}

// TestHistoryMinority: entries are added and read while any one server is down, so each server
// misses some. The history has all of them, and in order those that one server has.
func TestHistoryMinority(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	b := g.backend(ways.addrs())
	n := 0
	complete := func(what string, b driver.Backend) {
		t.Helper()
		got := textsOf(t, b, "x")
		if len(got) != n {
			t.Errorf("%s: %q; want %d entries", what, got, n)
		}
		for i := 0; i+1 < n; i += 2 { // two were added while the same server was down
			first, second := slices.Index(got, fmt.Sprint("entry ", i)), slices.Index(got, fmt.Sprint("entry ", i+1))
			if first < 0 || second < first {
				t.Errorf("%s: %q; want entries %d and %d in order", what, got, i, i+1)
			}
		}
	}
	for range 2 {
		for i := range g.servers {
			ways[i].Refuse()
			for range 2 {
				add(t, b, "x", fmt.Sprint("entry ", n))
				n++
				complete(fmt.Sprint("without server ", i+1), b)
			}
			ways[i].Heal()
		}
	}
	for i := range g.servers {
		ways[i].Refuse()
		complete(fmt.Sprint("read without server ", i+1), g.backend(ways.addrs()))
		ways[i].Heal()
	}
}

// TestHistoryRefused: if a majority refuses an entry and one server has it, the outcome is
// uncertain, and a repeat adds it. If all refuse it, it is refused.
func TestHistoryRefused(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	b := g.backend(g.addrs())
	add(t, b, "x", "first")
	heal := []func(){g.refusal(1, "min-replicas-to-write"), g.refusal(2, "maxmemory")}
	if err := b.AddHistory(within(t), "x", "second", 5); !errors.Is(err, driver.ErrUncertain) ||
		errors.Is(err, driver.ErrRefused) {
		t.Errorf("refused by two of three: %v; want ErrUncertain", err)
	}
	heal = append(heal, g.refusal(0, "min-replicas-to-write"))
	if err := b.AddHistory(within(t), "x", "third", 5); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("refused by all: %v; want ErrRefused", err)
	}
	if got := textsOf(t, b, "x"); len(got) == 0 || got[0] != "first" || slices.Contains(got, "third") {
		t.Errorf("History while all refuse writes: %q", got)
	}
	for _, h := range heal {
		h()
	}
	add(t, b, "x", "second")
	add(t, b, "x", "third")
	if got := textsOf(t, b, "x"); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("History = %q", got)
	}
}

// TestHistoryDamagedAtOne: a history that is damaged at a minority is read from the others. At a
// majority it is damaged, and harms nothing else.
func TestHistoryDamagedAtOne(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	b := g.backend(g.addrs())
	key := ""
	for end := time.Now().Add(20 * time.Second); key == ""; time.Sleep(5 * time.Millisecond) {
		add(t, b, "x", "first") // again, if the first server was not connected in time
		for shard := range 64 {
			if k := fmt.Sprintf("%s{%02x}:h:x", quorum.DefaultPrefix, shard); g.servers[0].Do("EXISTS "+k) == ":1" {
				key = k
			}
		}
		if time.Now().After(end) {
			t.Fatal("the first server does not get the entry")
		}
	}
	retype(t, g.servers[0], key)
	add(t, b, "x", "second")
	if got := textsOf(t, b, "x"); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("History = %q", got)
	}
	retype(t, g.servers[1], key)
	if _, err := b.History(within(t), "x"); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("History: %v; want ErrDamaged", err)
	}
	s := open(t, b, "a", time.Minute)
	get(t, s, try("x", "a-x"))
	add(t, b, "y", "sane")
}

// TestWhyMissing: the cause is what a majority of the servers says.
func TestWhyMissing(t *testing.T) {
	t.Parallel()
	g := start(t, 3, 2*time.Second)
	b := g.backend(g.addrs())
	cause := func(held time.Duration, want driver.Cause) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			got := driver.CauseUnknown
			again(t, "WhyMissing", func() (err error) {
				got, err = b.WhyMissing(within(t), "x", held)
				return err
			})
			if got == want {
				return
			}
			// A server may have answered too late: then no majority says the same.
			if got != driver.CauseUnknown || time.Now().After(end) {
				t.Fatalf("WhyMissing = %q; want %q", got, want)
			}
		}
	}
	cause(0, driver.CauseUnknown)
	g.servers[0].Do("FLUSHALL")
	cause(0, driver.CauseUnknown)
	g.servers[1].Do("FLUSHALL") // the majority is in quarantine now, and still tells
	cause(0, driver.CauseFlushed)
	g.servers[1].Restart(false)
	g.servers[2].Restart(false)
	cause(time.Hour, driver.CauseRestarted)
}
