package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// historyKey is the key of the history of a name.
func historyKey(name string) string { return "hf:" + tagOf(name) + ":h:" + name }

// textsOf returns the texts of a history.
func textsOf(t testing.TB, b driver.Backend, name string) (texts []string) {
	t.Helper()
	entries, err := b.History(within(t, soon), name)
	if err != nil {
		t.Fatalf("History: %v", err)
	}
	for _, e := range entries {
		texts = append(texts, e.Text)
	}
	return texts
}

func add(t testing.TB, b driver.Backend, name, text string, keep int) {
	t.Helper()
	if err := b.AddHistory(within(t, soon), name, text, keep); err != nil {
		t.Fatalf("AddHistory(%q, %.20q): %v", name, text, err)
	}
}

// TestHistoryKeys: a history is one key, which lives for HistoryLife after its last entry. Reading
// changes nothing, and makes no key.
func TestHistoryKeys(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	_, b := session(t, server.URL(), long)
	key := historyKey("x")
	before := server.Info("commandstats")
	for range 3 {
		if got := textsOf(t, b, "x"); len(got) != 0 {
			t.Errorf("History = %q", got)
		}
	}
	after := server.Info("commandstats")
	// The client checks its subscription and its connection now and then.
	expected := []string{"zrange", "evalsha", "eval", "info", "hdel", "pubsub|numsub", "ping"}
	for command, stats := range after {
		if calls(stats)-calls(before[command]) > 0 && !slices.Contains(expected, strings.TrimPrefix(command, "cmdstat_")) {
			t.Errorf("three looks at no history: %s: %s", command, stats)
		}
	}
	if n := calls(after["cmdstat_zrange"]); n != 3 {
		t.Errorf("three looks at no history: %d commands", n)
	}
	if got := server.Do("DBSIZE"); got != ":0" {
		t.Errorf("keys: %s; want none", got)
	}
	for i := range 5 {
		add(t, b, "x", fmt.Sprint(i), 3)
		server.Do("PEXPIRE " + key + " 100000")
	}
	add(t, b, "x", "4", 3) // a repeat
	if got := server.Do("DBSIZE"); got != ":1" {
		t.Errorf("keys: %s; want one", got)
	}
	if got := server.Do("ZCARD " + key); got != ":3" {
		t.Errorf("entries: %s", got)
	}
	life, err := strconv.Atoi(strings.TrimPrefix(server.Do("PTTL "+key), ":"))
	if left := time.Duration(life) * time.Millisecond; err != nil || left > driver.HistoryLife ||
		left < driver.HistoryLife-long {
		t.Errorf("the history lives for %v; want %v", left, driver.HistoryLife)
	}
}

// calls is how often a command was called, in an entry of INFO commandstats.
func calls(stats string) (n int) {
	_, _ = fmt.Sscanf(stats, "calls=%d", &n)
	return n
}

// TestHistoryClockSetBack: entries stay in order after the server's clock was set back, and none is
// older than nothing.
func TestHistoryClockSetBack(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	_, b := session(t, server.URL(), long)
	add(t, b, "x", "z", 9)
	server.Do(fmt.Sprintf("ZADD %s %d y", historyKey("x"), time.Now().Add(time.Hour).UnixMilli()*1000+8))
	add(t, b, "x", "x", 9)
	add(t, b, "x", "w", 9)
	if got := textsOf(t, b, "x"); !slices.Equal(got, []string{"z", "y", "x", "w"}) {
		t.Errorf("History = %q", got)
	}
	entries, err := b.History(within(t, soon), "x")
	for i, e := range entries {
		if e.Age < 0 || e.Age > long || i > 0 && e.Age != 0 {
			t.Errorf("age of %q: %v (%v)", e.Text, e.Age, err)
		}
	}
}

// TestHistoryDamaged: a damaged history is reported with its key. It harms neither the lock of that
// name, nor other histories, nor the list of names.
func TestHistoryDamaged(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s, b := session(t, server.URL(), long)
	ctx := within(t, long)
	key := historyKey("x")
	for what, c := range map[string]struct {
		command     string
		reads, adds bool // what can still be done
	}{
		"a list":              {"RPUSH " + key + " a", false, false},
		"a string":            {"SET " + key + " a", false, false},
		"no time":             {"ZADD " + key + " inf a", false, false},
		"the latest time":     {"ZADD " + key + " 9007199254740991 a", true, false},
		"part of a number":    {"ZADD " + key + " 1.5 a", false, true},
		"a negative time":     {"ZADD " + key + " -1000 a", false, true},
		"before all times":    {"ZADD " + key + " -inf a", false, true},
		"an element of bytes": {"ZADD " + key + " 1000 \xff", false, true},
	} {
		server.Do("FLUSHALL")
		add(t, b, "y", "sane", 3)
		h := granted(t, s, exclusive("x"))
		server.Do(c.command)
		if _, err := b.History(ctx, "x"); c.reads != (err == nil) || err != nil && !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%s: History: %v", what, err)
		}
		err := b.AddHistory(ctx, "x", "entry", 3)
		if c.adds && err != nil || !c.adds && (!errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), key)) {
			t.Errorf("%s: AddHistory: %v", what, err)
		}
		if got := textsOf(t, b, "y"); !slices.Equal(got, []string{"sane"}) {
			t.Errorf("%s: another history: %q", what, got)
		}
		if changes, err := s.Renew(ctx, []driver.Hold{h}); err != nil || len(changes) != 0 {
			t.Errorf("%s: Renew: %+v, %v", what, changes, err)
		}
		if err := s.Release(ctx, h, 0); err != nil {
			t.Errorf("%s: Release: %v", what, err)
		}
		if list, err := b.List(ctx, "", "", 9); err != nil || len(list) != 0 {
			t.Errorf("%s: List: %+v, %v", what, list, err)
		}
		server.Do("DEL " + key)
		add(t, b, "x", "again", 3)
	}
}

// TestHistoryAborted lets the script fail at each of its steps. The repeat then adds the entry
// once, or adds what was missing.
func TestHistoryAborted(t *testing.T) {
	t.Parallel()
	addr := testenv.Redis(t)
	s := newStepped(t, server, addr.Addr)
	for n := 1; ; n++ {
		name := fmt.Sprint("aborted", n)
		for i := range 3 {
			add(t, s, name, fmt.Sprint(i), 3)
		}
		s.do(t, "DEL", "step:failed")
		s.do(t, "SET", "step:at", strconv.Itoa(n))
		err := s.AddHistory(s.ctx, name, "3", 3)
		s.do(t, "DEL", "step:at")
		step, _ := s.do(t, "GET", "step:failed").ToString()
		if failed := step != ""; failed != (err != nil) {
			t.Errorf("step %d (%s): %v", n, step, err)
		}
		if got := textsOf(t, s, name); err != nil && !slices.Contains(got, "2") {
			t.Errorf("step %d (%s): %q", n, step, got)
		}
		add(t, s, name, "3", 3)
		add(t, s, name, "4", 3)
		if got := textsOf(t, s, name); !slices.Equal(got, []string{"2", "3", "4"}) {
			t.Errorf("after step %d (%s) and a repeat: %q", n, step, got)
		}
		if got := addr.Do("PTTL " + historyKey(name)); strings.HasPrefix(got, ":-") {
			t.Errorf("after step %d (%s): the history never expires", n, step)
		}
		if step == "" {
			if n < 5 {
				t.Errorf("only %d steps", n)
			}
			return
		}
	}
}

// TestHistoryIsNoRecord: histories are no names for List, for watchers and for the doctor.
func TestHistoryIsNoRecord(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, good...)
	_, b := session(t, server.URL(), long)
	ctx, cancel := context.WithCancel(within(t, soon))
	defer cancel()
	heard := make(chan string, 10)
	watching := make(chan error, 1)
	go func() {
		watching <- driver.Watch(ctx, b, "", func(name string) { heard <- name })
		close(heard)
	}()
	<-heard // it hears from now on
	for _, name := range []string{"", "x", "l:x"} {
		add(t, b, name, "entry", 3)
	}
	s, _ := session(t, server.URL(), long)
	granted(t, s, exclusive("y"))
	heardOfY := false
	for name := range heard {
		if heardOfY = name == "y"; heardOfY {
			break
		}
		if name != "" { // it may have missed something
			t.Errorf("heard of %q", name)
		}
	}
	cancel()
	if err := <-watching; !heardOfY {
		t.Errorf("Watch has ended: %v", err)
	}
	server.Do("RPUSH " + historyKey("z") + " damaged")
	if f := diagnose(t, dialRueidis(t, server.Addr), 15*time.Second)["redis.records"]; f.Severity != driver.Fine {
		t.Errorf("doctor: %+v", f)
	}
	if list, err := b.List(within(t, soon), "", "", 9); err != nil || len(list) != 1 || list[0].Name != "y" {
		t.Errorf("List: %+v, %v", list, err)
	}
}

// BenchmarkHistory measures what the longest history costs, and none.
func BenchmarkHistory(b *testing.B) {
	server := testenv.Redis(b)
	_, backend := session(b, server.URL(), long)
	ctx := context.Background()
	for i := range driver.MaxHistory {
		add(b, backend, "full", fmt.Sprintf("%04d", i)+strings.Repeat("x", driver.MaxEntry-4), driver.MaxHistory)
	}
	b.Logf("the longest history: %s bytes",
		strings.TrimPrefix(server.Do("MEMORY USAGE "+historyKey("full")+" SAMPLES 0"), ":"))
	for _, name := range []string{"", "full"} {
		b.Run(fmt.Sprintf("read %q", name), func(b *testing.B) {
			for b.Loop() {
				if _, err := backend.History(ctx, name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Logf("the server's time: %s", server.Info("commandstats")["cmdstat_evalsha"])
	b.Run("add", func(b *testing.B) {
		text, n := strings.Repeat("y", driver.MaxEntry-12), 0
		for b.Loop() {
			n++
			if err := backend.AddHistory(ctx, "full", fmt.Sprintf("%012d", n)+text, driver.MaxHistory); err != nil {
				b.Fatal(err)
			}
		}
	})
}
