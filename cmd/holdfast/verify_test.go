//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// verifyLimit bounds a run of verify in a test, with its judgement.
const verifyLimit = 3 * time.Minute

// verifyReport is the output of verify --json, as far as the tests use it.
type verifyReport struct {
	Schema, Outcome, Store string
	TTLMS                  int64 `json:"ttl_ms"`
	Seed                   uint64
	Grants                 int
	HandOver               struct {
		N     int
		P50MS float64 `json:"p50_ms"`
		MaxMS float64 `json:"max_ms"`
	} `json:"hand_over"`
	Recovery struct{ N int }
	Faults   map[string]int
	Excepted []string
	Because  string `json:"excepted_because"`
	Classes  []struct {
		Class, Promise, Outcome string
		Count                   int
		Violations, Doubts      []string
		Facts                   map[string]int
	}
	Notes               []string
	Histories, Shortest string
}

func (r *verifyReport) count(class string) int {
	for _, c := range r.Classes {
		if c.Class == class {
			return c.Count
		}
	}
	return -1
}

// verifyBench is a bench for runs of verify.
func verifyBench(t *testing.T) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test runs for a quarter of a minute")
	}
	b := newBench(t)
	b.env = append(b.env, "TMPDIR="+b.dir)
	return b
}

// small is a run that can run next to other tests. Its slack is large, because a busy machine is
// slow.
var small = []string{"--processes", "3", "--loops", "6", "--slack", "8s", "--pause", "150ms"}

// verify runs verify until it ends, and returns its JSON output.
func (b *bench) verify(code int, args ...string) (r verifyReport, stderr string) {
	b.Helper()
	p := b.start(append(append([]string{"verify", "--json"}, small...), args...)...)
	select {
	case <-p.done:
	case <-time.After(verifyLimit):
		b.Fatalf("verify does not end: %s", p.err.String())
	}
	out, stderr := p.out.String(), p.err.String()
	if strings.Contains(out+stderr, "c4nary") {
		b.Errorf("verify shows the password: %s%s", out, stderr)
	}
	err := json.Unmarshal([]byte(out), &r)
	if got := p.code(); got != code || err != nil {
		for _, c := range r.Classes {
			if len(c.Violations)+len(c.Doubts) > 0 {
				b.Logf("%s: %q %q", c.Class, c.Violations, c.Doubts)
			}
		}
		if text, err := os.ReadFile(r.Shortest); err == nil {
			b.Logf("%s", text)
		}
		b.Fatalf("verify %q: exit code %d, want %d, %v: %d grants, faults %v, notes %q: %s", args, got, code, err, r.Grants,
			r.Faults, r.Notes, stderr)
	}
	if r.Schema != "holdfast/v1" || len(r.Classes) != len(history.Classes) || r.Seed == 0 ||
		r.Outcome != map[int]string{0: "clean", 1: "violation", 2: "inconclusive"}[code] {
		b.Errorf("%s", out)
	}
	return r, stderr
}

// sound expects that a run is clean, and that it had grants and faults.
func (b *bench) sound(r verifyReport) {
	b.Helper()
	faults := 0
	for _, n := range r.Faults {
		faults += n
	}
	if r.Grants < 50 || faults < 1 || len(r.Notes) > 0 || r.HandOver.N == 0 || r.HandOver.P50MS <= 0 ||
		r.HandOver.MaxMS < r.HandOver.P50MS || r.Histories != "" {
		b.Errorf("%+v", r)
	}
	b.Logf("%d grants, hand-over p50 %.1f ms, faults %v", r.Grants, r.HandOver.P50MS, r.Faults)
	if left, _ := filepath.Glob(filepath.Join(b.dir, "holdfast-verify*")); len(left) > 0 {
		b.Errorf("left: %v", left)
	}
}

// Every kind of store is clean under the faults that verify does by itself. Some run at full size
// only.
func TestVerifyStores(t *testing.T) {
	always := []string{"redis", "postgres", "quorum"} // package torture tests sqlite
	for name, c := range map[string]struct {
		store func(b *bench) string
		args  []string
	}{
		"redis": {func(b *bench) string {
			return "redis://locker:c4nary@" + testenv.RedisACL(b, []string{"user locker on >c4nary ~* &* +@all"}).Addr
		}, nil},
		"sqlite": {func(b *bench) string { return "sqlite:" + b.dir + "/locks.db" }, nil},
		"postgres": {func(b *bench) string {
			b.initialise(postgresURL(postgres(b.T).Addr, "postgres", database(b.T, postgres(b.T))))
			return ""
		}, nil},
		"mysql": {func(b *bench) string {
			b.initialise(mySQLURL(mariaDB(b.T).Addr, "root", database(b.T, mariaDB(b.T))))
			return ""
		}, nil},
		"zookeeper": {func(b *bench) string { return zooKeeperURL(b.T) }, []string{"--ttl", "2s"}},
		"sentinel":  {func(b *bench) string { return testenv.RedisSentinel(b, testenv.SentinelSetup{}).URL("") }, nil},
		"cluster":   {func(b *bench) string { return testenv.RedisCluster(b, testenv.ClusterSetup{}).URL("") }, nil},
		"quorum": {func(b *bench) string {
			var addrs []string
			for range 3 {
				addrs = append(addrs, testenv.Redis(b).Addr)
			}
			url := "redis+quorum://" + strings.Join(addrs, ",")
			b.want(0, "init", "--store", url)
			return url
		}, nil},
	} {
		if !testenv.Deep() && !slices.Contains(always, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := verifyBench(t)
			if url := c.store(b); url != "" {
				b.env = append(b.env, "HOLDFAST_URL="+url)
			}
			r, stderr := b.verify(0, append([]string{"--duration", fmt.Sprintf("%ds", testenv.Rounds(7, 15))}, c.args...)...)
			b.sound(r)
			if (len(r.Excepted) > 0) != (name == "quorum") {
				t.Errorf("%v %s", r.Excepted, stderr)
			}
			if out, _ := b.want(0, "ls", "-o", "name"); out != "" {
				t.Errorf("left at the store: %s", out)
			}
		})
	}
}

// forgetful returns a bench with a store, and a hook that makes the store forget its locks.
func forgetful(t *testing.T) (b *bench, hook string) {
	t.Helper()
	b = verifyBench(t)
	s := testenv.Redis(b)
	b.env = append(b.env, "HOLDFAST_URL="+s.URL())
	host, port, _ := strings.Cut(s.Addr, ":")
	hook = filepath.Join(b.dir, "hook")
	// Most locks are held for milliseconds, so the hook empties the store many times.
	script := fmt.Sprintf("#!/bin/sh\n[ $1 = start ] || exit 0\nredis-cli -h %s -p %s -r 300 -i 0.01 flushall\n",
		host, port)
	if err := os.WriteFile(hook, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return b, hook
}

// verify finds that a store forgets its locks, and reports the events that prove it.
func TestVerifyViolation(t *testing.T) {
	b, hook := forgetful(t)
	keep := filepath.Join(b.dir, "kept")
	page := filepath.Join(b.dir, "page.html")
	r, _ := b.verify(1, "--pause", "50ms", "--duration", "8s", "--faults", "none", "--hook", "flush="+hook, "--keep", keep,
		"--html", page)
	// The hook may hit a mutex, or a read/write lock or semaphore.
	if r.count("S1")+r.count("S5") == 0 || r.Faults["flush"] == 0 || r.Histories != keep || len(r.Faults) != 1 {
		t.Errorf("%+v", r)
	}
	events, err := history.ReadFiles(r.Shortest)
	if err != nil || len(events) < 2 {
		t.Errorf("the shortest history has %d events: %v", len(events), err)
	}
	b.judgedAgain(1, r)
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), `class="conflict begins"`) {
		t.Errorf("%v: %.200s", err, text)
	}
}

// judgedAgain expects that judge reports of the kept histories what verify has reported.
func (b *bench) judgedAgain(code int, r verifyReport) {
	b.Helper()
	out, stderr := b.want(code, "judge", r.Histories, "--slack", "8s", "-o", "json")
	var again verifyReport
	err := json.Unmarshal([]byte(out), &again)
	if err != nil || again.Outcome != r.Outcome || again.Grants != r.Grants || again.TTLMS != r.TTLMS ||
		!reflect.DeepEqual(again.Faults, r.Faults) || !reflect.DeepEqual(again.Classes, r.Classes) {
		b.Errorf("verify reported %+v, judge %+v: %v: %s", r, again, err, stderr)
	}
}

// With --except, a broken promise is reported, but is no violation.
func TestVerifyExcept(t *testing.T) {
	b, hook := forgetful(t)
	var except []string
	for _, c := range history.Classes {
		if c != history.V {
			except = append(except, string(c))
		}
	}
	out, stderr := b.wantSlow(0, append(append([]string{"verify"}, small...), "--pause", "50ms", "--duration", "7s",
		"--faults", "none",
		"--hook", "flush="+hook, "--except", strings.Join(except, ","))...)
	if !strings.Contains(out, "broken, but not promised here") || !strings.Contains(out, "\nverdict     clean\n") ||
		!strings.Contains(out, "as asked for") {
		t.Errorf("%s%s", out, stderr)
	}
}

// wantSlow is want for a command that takes longer.
func (b *bench) wantSlow(code int, args ...string) (stdout, stderr string) {
	b.Helper()
	p := b.start(args...)
	select {
	case <-p.done:
	case <-time.After(verifyLimit):
		b.Fatalf("%v does not end: %s", args, p.err.String())
	}
	if got := p.code(); got != code {
		b.Fatalf("%v: exit code %d, want %d: %s%s", args, got, code, p.out.String(), p.err.String())
	}
	return p.out.String(), p.err.String()
}

// A run that proves nothing is inconclusive, and reports why.
func TestVerifyInconclusive(t *testing.T) {
	b := verifyBench(t)
	url := testenv.Redis(b).URL()
	type easy struct {
		args []string
		says string
	}
	all := map[string]easy{
		"no faults": {[]string{"--faults", "none", "--duration", "6s"}, "0 faults; at least 1 are needed"},
		"a broken hook": {[]string{"--faults", "none", "--hook", "x=echo words >&2; exit 3; :", "--duration", "6s"},
			"hook x start"},
	}
	if testenv.Deep() {
		all["few grants"] = easy{[]string{"--ops", "1", "--faults", "kill", "--duration", "6s"}, "0 faults"}
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			b := verifyBench(t)
			r, _ := b.verify(2, append([]string{"--store", url}, c.args...)...)
			reported := append([]string{}, r.Notes...)
			for _, v := range r.Classes {
				reported = append(reported, v.Doubts...)
				if v.Count != 0 {
					t.Errorf("%+v", v)
				}
			}
			if !strings.Contains(strings.Join(reported, "\n"), c.says) {
				t.Errorf("%q", reported)
			}
		})
	}
}

// Invalid usage, or a store that cannot be used, never has the exit code 0, 1 or 2.
func TestVerifyUsage(t *testing.T) {
	b := newBench(t)
	full := filepath.Join(b.dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	url := testenv.Redis(t).URL()
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, "--html", []string{"--html", b.dir + "/does/not/exist"}},
		{78, "other processes cannot", []string{"--store", "memory:"}}, {78, "scheme", []string{"--store", "here"}},
		{78, "2 to 64", []string{"--processes", "1"}},
		{78, "1 to 1000000", []string{"--ops", "1000001"}}, {78, `"nonsense"`, []string{"--faults", "nonsense"}},
		{78, "not reached over a network", []string{"--faults", "cut"}},
		{78, "--duration: invalid duration 5s: leases last 1s here, so it takes at least 6s", []string{"--duration", "5s"}},
		{78, "not empty", []string{"--keep", full}},
		{78, "one word", []string{"--hook", "kill=true"}}, {78, "mix", []string{"--mix", "x"}},
		{64, "does not apply", []string{"--worker", "true", "--clients", "3"}},
		{64, "does not apply", []string{"--worker", "true", "--beside", "1", "--mix", "mutex"}},
		{64, "needs --worker", []string{"--beside", "1"}},
		{64, "must be positive", []string{"--worker", "true", "--beside", "0"}},
		{78, "allowed are 0 to 3", []string{"--worker", "true", "--beside", "4", "--store", url}},
		{78, "--worker: broken", []string{"--worker", "echo broken >&2; exit 3", "--beside", "1", "--store", url}},
		{78, "ask it for addresses", []string{"--worker", "true", "--store", "redis+cluster://u:c4nary@a"}},
		{78, "--worker: broken", []string{"--worker", "echo broken redis://u:c4nary@a >&2; exit 3", "--store", "x:///d"}},
		{69, "", []string{"--worker", "true", "--store", "redis://u:c4nary@127.0.0.1:1"}},
		{69, "", []string{"--store", "redis://u:c4nary@127.0.0.1:1"}},
		{69, "", []string{"--store", "postgres://u:c4nary@127.0.0.1:1/d"}},
	} {
		out, stderr := b.want(c.code, append([]string{"verify"}, c.args...)...)
		if !strings.Contains(stderr, c.says) || strings.Contains(stderr, "c4nary") || out != "" {
			t.Errorf("%v: %q %q", c.args, out, stderr)
		}
	}
	if out, _ := b.want(0, "verify", "--help"); !strings.Contains(out, "drop-replies") || strings.Contains(out, "%!") {
		t.Errorf("%s", out)
	}
	if out, _ := b.want(0, "__complete", "verify", "--faults", "c"); !strings.Contains(out, "cut-replies") {
		t.Errorf("%s", out)
	}
	if out, _ := b.want(0, "help"); strings.Contains(out, "verify-worker") || !strings.Contains(out, "holdfast verify") {
		t.Errorf("%s", out)
	}
	if _, stderr := b.want(64, "verify-worker", "x"); stderr == "" {
		t.Error("no message")
	}
}

// A user without the rights that locks need is refused.
func TestVerifyRefused(t *testing.T) {
	b := newBench(t)
	s := testenv.RedisACL(b, []string{"user few on >c4nary ~* &* +@all -eval -evalsha -script -fcall"})
	if _, stderr := b.want(77, "verify", "--store", "redis://few:c4nary@"+s.Addr); strings.Contains(stderr, "c4nary") {
		t.Error(stderr)
	}
	m := mariaDB(t)
	if _, stderr := b.want(77, "verify", "--store", mySQLURL(m.Addr, "root", database(t, m))); !strings.Contains(stderr,
		"holdfast init") {
		t.Error(stderr)
	}
}

// The same seed does the same faults in the same order. Their number depends on the machine, but is
// at least one.
func TestVerifySeed(t *testing.T) {
	b := verifyBench(t)
	url := testenv.Redis(b).URL()
	fault := regexp.MustCompile(`"kind":"fault","id":"f(\d+)","target":"p(\d)\.\d+","text":"([a-z-]+)"`)
	schedule := func(b *bench) map[string]string {
		keep := filepath.Join(b.dir, "kept")
		r, _ := b.verify(0,
			"--store", url, "--seed", "11", "--duration", "7s", "--faults", "reset,refuse,kill", "--keep", keep)
		b.judgedAgain(0, r)
		text, err := os.ReadFile(filepath.Join(keep, "coordinator.jsonl"))
		if err != nil {
			b.Fatal(err)
		}
		all := map[string]string{}
		for _, m := range fault.FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = m[3] + " of process " + m[2]
		}
		return all
	}
	var one, two map[string]string
	t.Run("side by side", func(t *testing.T) {
		t.Run("one", func(t *testing.T) { one = schedule(verifyBench(t)) })
		t.Run("two", func(t *testing.T) { two = schedule(verifyBench(t)) })
	})
	both := 0
	for id, what := range one {
		if again, ok := two[id]; ok {
			both++
			if again != what {
				t.Errorf("fault %s: %s at first, then %s", id, what, again)
			}
		}
	}
	if both < 1 {
		t.Errorf("%v and %v", one, two)
	}
}
