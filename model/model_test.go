// Package model has the hand-over protocol in Promela, and the test that checks it with spin.
package model

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// run is one exhaustive search.
type run struct {
	spec  string
	defs  string // definitions: name or name=value
	claim string // the LTL property; if empty, the promises and deadlock are checked
	least int    // the least number of states: a model that does nothing keeps every promise
}

// Sizes for every run of the test.
var sizesAlways = []run{
	{"mutex", "N=2 FAULTS=1 OPERATOR GUARD", "", 200_000},
	{"mutex", "N=2 FAULTS=0 ROUNDS=2", "", 5_000},
	{"rw", "N=2 FAULTS=1", "", 50_000},
	{"semaphore", "N=2 FAULTS=1", "", 50_000},
	{"mutex", "N=2 FAULTS=1 LIVENESS", "served", 50_000},
}

// Sizes for the tests at their full size: a minute together with the mistakes.
var sizesDeep = []run{
	{"mutex", "N=3 FAULTS=0", "", 50_000},
	{"mutex", "N=2 FAULTS=2", "", 1_000_000},
	{"rw", "N=3 FAULTS=0", "", 50_000},
	{"semaphore", "N=3 FAULTS=0", "", 50_000},
	{"mutex", "N=2 FAULTS=1 LIVENESS", "goes_on", 50_000},
}

// Sizes for a night: HOLDFAST_TEST_SPIN=full.
var sizesFull = []run{
	{"mutex", "N=2 FAULTS=2 OPERATOR GUARD", "", 5_000_000},
	{"mutex", "N=2 FAULTS=3", "", 5_000_000},
	{"mutex", "N=3 FAULTS=1", "", 3_000_000},
	{"mutex", "N=3 FAULTS=1 OPERATOR", "", 3_000_000},
	{"mutex", "N=2 FAULTS=1 ROUNDS=2", "", 1_000_000},
	{"rw", "N=2 FAULTS=3", "", 5_000_000},
	{"rw", "N=3 FAULTS=1", "", 4_000_000},
	{"rw", "N=3 FAULTS=1 WRITERS=2", "", 8_000_000},
	{"semaphore", "N=2 FAULTS=3", "", 5_000_000},
	{"semaphore", "N=3 FAULTS=1", "", 3_000_000},
	{"mutex", "N=2 FAULTS=2 LIVENESS", "served", 500_000},
	{"mutex", "N=2 FAULTS=2 LIVENESS", "goes_on", 500_000},
	{"rw", "N=2 FAULTS=2 LIVENESS", "served", 500_000},
	{"semaphore", "N=2 FAULTS=2 LIVENESS", "served", 500_000},
}

type mistake struct {
	spec, defs, promise string
}

// small reports whether the search that has to catch the mistake takes a second.
func (m mistake) small() bool {
	return !strings.Contains(m.defs, "FAULTS=2") && (strings.Contains(m.defs, "N=2") ||
		strings.Contains(m.defs, "FAULTS=0"))
}

// larger reports whether to search the larger sizes and all mistakes.
func larger() bool { return testenv.Deep() || os.Getenv("HOLDFAST_TEST_SPIN") != "" }

// droppedAssumption is no mistake: it drops the assumption that no request arrives later than a TTL
// after it was sent. Only the larger size shows why that assumption is needed.
var droppedAssumption = mistake{"mutex", "ANY_DELAY N=2 FAULTS=3", "exclusion"}

// The promise that each mistake breaks has to catch it.
var mistakes = []mistake{
	{"mutex", "RELEASE_ANY N=3 FAULTS=1", "exclusion"},
	{"mutex", "FULL_LEASE_AT_PUSH N=2 FAULTS=2", "exclusion"},
	{"mutex", "TRUST_FROM_ANSWER N=2 FAULTS=2", "exclusion"},
	{"mutex", "NO_MARGIN N=2 FAULTS=1", "exclusion"},
	{"mutex", "NO_PUSH_FILTER N=2 FAULTS=2", "exclusion"},
	{"mutex", "PROOF_OF_ANOTHER N=2 FAULTS=2", "exclusion"},
	{"mutex", "SECOND_PLACE N=2 FAULTS=1", "one_place"},
	{"mutex", "REVIVE N=2 FAULTS=1", "expired_stays_expired"},
	{"mutex", "HAND_OVER_FOR_EVER N=2 FAULTS=1", "given_up_expires"},
	{"mutex", "HAND_OVER_IN_FULL N=3 FAULTS=2", "recovery"},
	{"mutex", "PLACES_FOR_EVER N=3 FAULTS=2", "given_up_expires"},
	{"mutex", "NO_NEW_TOKEN N=2 FAULTS=0", "tokens_grow"},
	{"mutex", "TOKEN_IS_COUNT OPERATOR N=2 FAULTS=1", "tokens_grow"},
	{"mutex", "CANCEL_KEEPS_GRANT N=2 FAULTS=0", "cancel_leaves_nothing"},
	{"mutex", "NO_HAND_OVER N=2 FAULTS=0", "never_free_with_a_queue"},
	{"mutex", "CHECK_AT_WRITE GUARD N=2 FAULTS=1", "no_lost_update"},
	{"mutex", "NO_CHECK GUARD N=2 FAULTS=1", "guard"},
	{"mutex", "NO_ASKING_AGAIN N=2 FAULTS=1", "recovery"},
	{"mutex", "NO_ASKING_AGAIN LIVENESS N=2 FAULTS=1", "served"},
	{"rw", "READERS_IGNORED N=2 FAULTS=0", "exclusion"},
	{"rw", "BARGE N=3 FAULTS=0", "order"},
	{"rw", "MODE_AT_ANSWER N=2 FAULTS=1", "exclusion"},
	{"semaphore", "BARGE N=3 FAULTS=0", "order"},
	{"semaphore", "LEAK N=2 FAULTS=1", "permits_conserved"},
	{"semaphore", "FREED_TWICE N=2 FAULTS=2", "permits_conserved"},
}

// TestPromises searches every state of the model, or fails.
func TestPromises(t *testing.T) {
	need(t)
	runs := sizesAlways
	if larger() {
		runs = slices.Concat(runs, sizesDeep)
	}
	if os.Getenv("HOLDFAST_TEST_SPIN") == "full" {
		runs = append(runs, sizesFull...)
	}
	for _, r := range runs {
		t.Run(name(r.spec, r.defs, r.claim), func(t *testing.T) {
			optimize := "-O0"
			if r.least >= 1_000_000 { // for fewer states, gcc -O2 costs more time than it saves
				optimize = "-O2"
			}
			v := search(t, r.spec, r.defs, r.claim, optimize)
			switch {
			case v.errors != 0:
				t.Errorf("%d errors: %s\n%s", v.errors, v.brokenPromise, v.trace)
			case v.incomplete != "":
				t.Errorf("the search is incomplete, so it proves nothing: %s", v.incomplete)
			case v.states < r.least:
				t.Errorf("%d states; want at least %d: the model does too little", v.states, r.least)
			}
			t.Logf("%d states, depth %d, %s, %.0f MB", v.states, v.depth, v.took, v.memory)
		})
	}
}

// TestMistakes puts one mistake at a time into the model: the small ones, or all of them.
func TestMistakes(t *testing.T) {
	need(t)
	all := mistakes
	if os.Getenv("HOLDFAST_TEST_SPIN") == "full" {
		all = append(all, droppedAssumption)
	}
	for _, m := range all {
		if !larger() && !m.small() {
			continue
		}
		claim := ""
		if strings.Contains(m.defs, "LIVENESS") {
			claim = m.promise
		}
		t.Run(name(m.spec, m.defs, claim), func(t *testing.T) {
			v := search(t, m.spec, m.defs, claim, "-O0")
			if v.errors == 0 || v.brokenPromise != m.promise {
				t.Errorf("caught by %q (%d errors, %s); want %q", v.brokenPromise, v.errors, v.incomplete, m.promise)
			}
			t.Logf("%s, after %d states, %s", v.brokenPromise, v.states, v.took)
			if os.Getenv("HOLDFAST_TEST_SPIN") == "traces" {
				t.Log("\n" + v.trace)
			}
		})
	}
}

func name(spec, defs, claim string) string {
	return strings.TrimSpace(spec + " " + defs + " " + claim)
}

func need(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it searches millions of states")
	}
	for _, program := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing: scripts/test.sh has its source", program)
		}
	}
}

// result is the result of a search.
type result struct {
	errors, states, depth int
	memory                float64
	took                  time.Duration
	brokenPromise         string // the broken promise
	incomplete            string // why the search is incomplete
	trace                 string
}

var numbers = regexp.MustCompile(
	`depth reached (\d+), errors: (\d+)|(?m)^\s*(\d+) states, stored|([\d.]+)\s+total actual memory`)

// search translates a spec with spin, compiles it with gcc, and runs the search.
func search(t *testing.T, spec, defs, claim, optimize string) result {
	t.Helper()
	dir := t.TempDir()
	sources, err := filepath.Glob("*.pml")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		text, err := os.ReadFile(s)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, s), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	limit, megabytes, table := 5*time.Minute, 1400, "-w22" // spin's hash table does not grow
	if os.Getenv("HOLDFAST_TEST_SPIN") == "full" {
		limit, megabytes, table = 30*time.Minute, 6000, "-w25"
	}
	args := []string{"-a"}
	for d := range strings.FieldsSeq(defs) {
		args = append(args, "-D"+d)
	}
	must(t, dir, 3*time.Minute, "spin", append(args, spec+".pml")...)
	cc := []string{optimize, "-w", "-DNOFAIR", "-DVECTORSZ=1024", "-DMEMLIM=" + strconv.Itoa(megabytes), "-o", "pan",
		"pan.c"}
	call := []string{"-m100000", table}
	if claim == "" {
		cc = append(cc, "-DSAFETY")
	} else {
		call = append(call, "-a", "-N", claim)
	}
	must(t, dir, 3*time.Minute, "gcc", cc...)
	start := time.Now()
	v := read(must(t, dir, limit, "./pan", call...))
	v.took = time.Since(start).Round(10 * time.Millisecond)
	if v.errors > 0 {
		if claim != "" && strings.Contains(v.brokenPromise, "acceptance cycle") {
			v.brokenPromise = claim
		}
		v.trace = steps(t, dir, must(t, dir, 3*time.Minute, "./pan", "-r"))
	}
	return v
}

// read parses the output of pan.
func read(out string) result {
	v := result{errors: -1}
	for _, m := range numbers.FindAllStringSubmatch(out, -1) {
		switch {
		case m[1] != "":
			v.depth, _ = strconv.Atoi(m[1])
			v.errors, _ = strconv.Atoi(m[2])
		case m[3] != "":
			v.states, _ = strconv.Atoi(m[3])
		default:
			v.memory, _ = strconv.ParseFloat(m[4], 64)
		}
	}
	if v.errors < 0 {
		v.incomplete = "no result: " + out
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "broken: "):
			v.brokenPromise = strings.TrimPrefix(line, "broken: ")
		case strings.HasPrefix(line, "pan:1:") && v.brokenPromise == "":
			v.brokenPromise = line
		case strings.Contains(line, "Search not completed") && v.errors == 0,
			strings.Contains(line, "max search depth too small"),
			strings.Contains(line, "reached -DMEMLIM"),
			strings.Contains(line, "out of memory"):
			v.incomplete = line
		}
	}
	return v
}

var step = regexp.MustCompile(`proc\s+(\d+) \((\w+)\).*D_STEP(\d+)`)

// steps makes a trace readable: the source line of each step.
func steps(t *testing.T, dir, raw string) string {
	t.Helper()
	lines := map[string][]string{}
	for process, file := range map[string]string{"client": "client.pml", "world": "clock.pml"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		lines[process] = strings.Split(string(text), "\n")
	}
	var b strings.Builder
	for line := range strings.Lines(raw) {
		m := step.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		n, _ := strconv.Atoi(m[3])
		fmt.Fprintf(&b, "%s %s: %s\n", m[2], m[1], strings.TrimSpace(
			strings.TrimPrefix(strings.TrimSpace(lines[m[2]][n-1]), ":: d_step {")))
	}
	return b.String()
}

// must runs a program in dir and returns its output. pan exits with 0 even when it has found an
// error.
func must(t *testing.T, dir string, limit time.Duration, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = dir
	if !filepath.IsLocal(program) || strings.HasPrefix(program, "./") {
		c.Path = filepath.Join(dir, program)
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v (limit %v)\n%s", program, strings.Join(args, " "), err, limit, out.String())
	}
	return out.String()
}
