package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	all := []suite{
		{name: "first", takes: 10 * time.Minute},
		{name: "too long", takes: time.Hour},
		{name: "second", takes: 5 * time.Minute},
		{name: "three parts", share: 3},
		{name: "one part", share: 1},
	}
	for total, want := range map[time.Duration]string{
		time.Minute:       "three parts 45s, one part 15s",
		12 * time.Minute:  "second 5m0s, three parts 5m15s, one part 1m45s",
		31 * time.Minute:  "first 10m0s, second 5m0s, three parts 12m0s, one part 4m0s",
		600 * time.Minute: "first 10m0s, too long 1h0m0s, second 5m0s, three parts 6h33m45s, one part 2h11m15s",
	} {
		var got []string
		for _, s := range plan(all, total) {
			got = append(got, s.name+" "+s.time.String())
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%v: %s; want %s", total, s, want)
		}
	}
}

// Suites that run once may take all of the time if no other is wanted.
func TestChosen(t *testing.T) {
	all := []suite{{name: "first", takes: time.Minute}, {name: "a second one", takes: time.Hour},
		{name: "third", share: 1}}
	some, err := chosen(all, []string{"a second one", "first"})
	if steps := plan(some, 61*time.Minute); err != nil || len(steps) != 2 || steps[0].name != "first" {
		t.Errorf("%v, %v; want both", steps, err)
	}
	if some, err := chosen(all, nil); err != nil || len(some) != len(all) {
		t.Errorf("without names: %v, %v; want all", some, err)
	}
	const want = `"fourth" is no suite; want some of: first, a second one, third`
	if _, err := chosen(all, []string{"third", "fourth"}); err == nil || err.Error() != want {
		t.Errorf("an unknown name: %v; want %s", err, want)
	}
	var said strings.Builder
	if code := run([]string{"-deep", "1", "runs.md", "fourth"}, io.Discard, &said); code != 2 ||
		!strings.Contains(said.String(), `"fourth" is no suite`) {
		t.Errorf("testrun: exit code %d, %s", code, &said)
	}
}

// A repeated suite gets its share of the time that earlier suites have left.
func TestPart(t *testing.T) {
	steps := []step{{suite{takes: time.Hour}, time.Hour}, {suite{share: 3}, time.Minute}, {suite{share: 1}, time.Minute}}
	for i, want := range []time.Duration{time.Hour, 3 * time.Second, 4 * time.Second} {
		if got := part(steps[i:], 4*time.Second); got != want {
			t.Errorf("step %d has %v; want %v", i, got, want)
		}
	}
	if got := part(steps[1:], -time.Minute); got != 0 {
		t.Errorf("a step has %v of no time", got)
	}
}

// The directories and tests that the suites name exist.
func TestSuites(t *testing.T) {
	for _, s := range suites {
		if (s.takes > 0) == (s.share > 0) {
			t.Errorf("%s takes %v and has %d parts; want one of the two", s.name, s.takes, s.share)
		}
		for _, a := range s.args {
			if !strings.HasPrefix(a, "./") || a == "./..." {
				continue
			}
			pattern := filepath.Join(a, "*_test.go")
			if module, ok := strings.CutSuffix(a, "..."); ok {
				pattern = filepath.Join(module, "go.mod")
			}
			files, err := filepath.Glob(filepath.Join("../..", s.dir, pattern))
			if err != nil || len(files) == 0 {
				t.Errorf("%s: no tests in %s", s.name, a)
			}
		}
	}
}

func TestDeep(t *testing.T) {
	dir := module(t, map[string]string{
		"a": passes, "b": fails,
		"c": "import \"testing\"\nfunc FuzzGood(f *testing.F) { f.Fuzz(func(t *testing.T, s string) {}) }\n",
		// It fails by itself: a second may be too short for the start of the workers.
		"d": "import \"testing\"\nfunc FuzzBad(f *testing.F) { f.Error(\"any text\"); f.Fuzz(func(*testing.T, string) {}) }\n",
	})
	file := filepath.Join(dir, "runs.md")
	write(t, file, "# Runs\n\n## Long runs\n\nWhat was run.\n\n### 2020-01-01, an old one\n\nrows\n")
	parts := []suite{
		{name: "good", question: "this", dir: dir, args: []string{"./a"}, takes: time.Millisecond},
		{name: "bad", question: "that", dir: dir, args: []string{"./b"}, takes: time.Millisecond},
		{name: "again", question: "more", dir: dir, args: []string{"./a"}, share: 1},
		{name: "renamed", question: "nothing", dir: dir, args: []string{"-run", "^TestOther$", "./a"},
			takes: time.Millisecond},
		{name: "long", question: "much", dir: dir, args: []string{"./a"}, takes: time.Hour},
	}
	want := []string{
		"What was run.\n\n### 20", ", 0.1 minutes asked for, ", "| good | this | 1 | ", "FAILED: TestParts |\n",
		"| long | much | 0 | | left out: it takes 1h0m0s |\n", "FAILED: no test ran |\n",
		"\n### 2020-01-01, an old one\n\nrows\n",
	}
	if os.Getenv("HOLDFAST_TEST_DEEP") != "" { // go test builds the standard library again for fuzzing
		parts = append(parts, suite{name: "texts", question: "any", fuzz: []string{dir}, share: 1})
		want = append(want, "FAILED: FuzzBad |\n")
	}
	var out strings.Builder
	code := deep(parts, 0.1, file, &out)
	text, err := os.ReadFile(file)
	if code != 1 || err != nil {
		t.Errorf("exit code %d, %v; want 1", code, err)
	}
	for _, s := range want {
		if !strings.Contains(string(text), s) {
			t.Errorf("%q is missing", s)
		}
	}
	// The table is in its section, even if it is the first.
	first := filepath.Join(dir, "first.md")
	write(t, first, "## Long runs\n\nWhat was run.\n\n## Another section\n\n### A part\n")
	if err := record(first, "a minute", "| row |\n"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(first); err != nil ||
		!strings.HasSuffix(string(text), "| row |\n\n## Another section\n\n### A part\n") {
		t.Errorf("%v: the table is not in its section:\n%s", err, text)
	}
	if !strings.Contains(out.String(), "what it saw") {
		t.Error("the output of a test that failed is missing")
	}
	if t.Failed() {
		t.Logf("%s\n%s", text, out.String())
	}
	if code := deep(nil, 0.1, filepath.Join(dir, "none"), &out); code != 1 {
		t.Error("no file: exit code 0")
	}
}

// The end of a fuzz target's time is no finding.
func TestRanOut(t *testing.T) {
	const end = "fuzz: elapsed: 1s, execs: 26406 (24006/sec), new interesting: 0 (total: 1)\n" +
		"--- FAIL: FuzzGood (1.11s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\texample/c\t1.122s\n"
	for text, want := range map[string]bool{
		end: true, "": false, "FAIL\texample/c [build failed]\n": false,
		strings.Replace(end, "    context", "    --- FAIL: FuzzGood (0.00s)\n        c_test.go:4: context", 1):      false,
		strings.Replace(end, "exceeded\n", "exceeded\n    Failing input written to testdata/fuzz/FuzzGood/77\n", 1): false,
	} {
		if got := ranOut(text); got != want {
			t.Errorf("%v; want %v: %q", got, want, text)
		}
	}
}
