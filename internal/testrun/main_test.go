package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// module creates a module of packages, each a folder with one test file.
func module(t *testing.T, packages map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example\n\ngo 1.25\n")
	for name, text := range packages {
		write(t, filepath.Join(dir, name, "x_test.go"), "package x\n\n"+text)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	passes = `import "testing"
func TestGood(t *testing.T) { t.Log("not shown") }
func TestLeftOut(t *testing.T) { t.Skip("no such machine") }
`
	fails = `import "testing"
func TestParts(t *testing.T) {
	t.Run("good", func(t *testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Error("what it saw") })
}
`
	panics = `import "testing"
func TestTimedPanic(t *testing.T) { panic("no machine is to blame") }
`
	broken = `import "testing"
func TestNothing(t *testing.T) { undefined() }
`
	// The first run of TestTimedOnce fails, and every run of TestTimedNever.
	timed = `import ("os"; "testing")
func TestTimedOnce(t *testing.T) {
	if _, err := os.Stat("seen"); err != nil {
		os.WriteFile("seen", nil, 0o644)
		t.Fatal("too late")
	}
}
func TestOther(t *testing.T) {
	f, err := os.OpenFile("runs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("x")
}
`
	settings = `import ("runtime/debug"; "testing")
func TestSettings(t *testing.T) {
	info, _ := debug.ReadBuildInfo()
	text := "built with"
	for _, s := range info.Settings {
		if s.Key == "-race" || s.Key == "-gcflags" || s.Key == "-trimpath" || s.Key == "CGO_ENABLED" {
			text += " " + s.Key + "=" + s.Value
		}
	}
	t.Error(text + ".")
}
`
	steps = `import ("runtime/debug"; "testing")
func TestSteps(t *testing.T) { build(t) }
func TestTogether(t *testing.T) { build(t) }
func build(t *testing.T) {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			t.Fatal("has the race detector: " + t.Name())
		}
	}
	t.Fatal("has none: " + t.Name())
}
`
	never = `import "testing"
func TestTimedNever(t *testing.T) { t.Error("late again") }
`
)

// example is a call of run, and what it prints.
type example struct {
	packages map[string]string
	args     []string
	code     int
	want     []string
	not      []string
}

func TestRun(t *testing.T) {
	testRun(t, map[string]example{
		"passes": {
			map[string]string{"a": passes}, nil, 0,
			[]string{"ok  ", "example/a", "1 tests: no such machine", "example/a: TestLeftOut", "1 passed, 0 failed, 1 skipped"},
			[]string{"not shown", "FAIL"},
		},
		"fails": {
			map[string]string{"a": passes, "b": fails}, nil, 1,
			[]string{"what it saw", "FAILED example/b: TestParts", "2 passed, 2 failed, 1 skipped"},
			[]string{"again"},
		},
		"does not build": {
			map[string]string{"a": broken, "b": passes}, nil, 1,
			[]string{"undefined: undefined", "FAILED example/a: no test of its own", "1 passed, 1 failed"}, nil,
		},
		"timed": {
			map[string]string{"a": timed}, nil, 0,
			[]string{"== timed: 1 packages", "timed, and run again: example/a: TestTimedOnce", "2 passed, 0 failed"}, nil,
		},
		"timed and always late": {
			map[string]string{"a": never}, nil, 1,
			[]string{"late again", "FAILED example/a: TestTimedNever"}, nil,
		},
		"a panic is not repeated": {
			map[string]string{"a": panics}, nil, 1,
			[]string{"no machine is to blame", "FAILED example/a: TestTimedPanic"}, []string{"again"},
		},
		"alone": {
			map[string]string{"a": passes, "b": passes}, []string{"-alone", "/b$"}, 0,
			[]string{"== in parallel: 1 packages", "== one at a time: 1 packages"}, nil,
		},
		"no modules":    {nil, nil, 2, []string{"usage"}, nil},
		"wrong flag":    {nil, []string{"-x"}, 2, nil, nil},
		"wrong pattern": {nil, []string{"-alone", "(", "."}, 2, []string{"missing closing"}, nil},
		"wrong steps":   {nil, []string{"-steps", "(", "."}, 2, []string{"missing closing"}, nil},
		"no such module": {
			nil, []string{filepath.Join(os.TempDir(), "holdfast-no-such-module")}, 1, []string{"go list"}, nil,
		},
	})
}

func TestRunWithRaceDetector(t *testing.T) {
	t.Setenv("CGO_ENABLED", "1") // the command tests this package without it
	testRun(t, map[string]example{
		"like a release": {
			map[string]string{"a": settings, "b": passes}, []string{"-norace", "/a$", "-flags",
				"-race -gcflags=example/a=-race=false -vet=off"}, 1,
			[]string{"-trimpath=true CGO_ENABLED=0."}, []string{"-race=true", "-gcflags=example"}, // others are of GOFLAGS
		},
		"steps": {
			map[string]string{"a": steps, "b": passes}, []string{"-steps", "/a.TestSteps$", "-flags", "-race -vet=off"}, 1,
			[]string{"has none: TestSteps", "has the race detector: TestTogether", "FAILED example/a: TestTogether",
				"FAILED example/a (steps): TestSteps", "1 passed, 2 failed"},
			[]string{"has the race detector: TestSteps", "has none: TestTogether"},
		},
	})
}

// testRun runs the examples in parallel.
func testRun(t *testing.T, examples map[string]example) {
	for name, c := range examples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"-flags", "-vet=off"}, c.args...)
			if c.packages != nil {
				args = append(args, module(t, c.packages))
			}
			var out strings.Builder
			if code := run(args, &out, &out); code != c.code {
				t.Errorf("exit code %d; want %d", code, c.code)
			}
			for _, s := range c.want {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q is missing", s)
				}
			}
			for _, s := range c.not {
				if strings.Contains(out.String(), s) {
					t.Errorf("%q is printed", s)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

// TestOnlyTimedIsRepeated counts the runs of a test next to a timed one that fails.
func TestOnlyTimedIsRepeated(t *testing.T) {
	dir := module(t, map[string]string{"a": timed})
	record := filepath.Join(t.TempDir(), "events")
	var out strings.Builder
	if code := run([]string{"-flags", "-vet=off -timeout 20m -parallel=4", "-json", record, dir}, &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	runs, err := os.ReadFile(filepath.Join(dir, "a", "runs"))
	if err != nil || string(runs) != "x" {
		t.Errorf("runs %q, %v; want one", runs, err)
	}
	events, err := os.ReadFile(record)
	if n := strings.Count(string(events), `"Action":"fail","Package":"example/a","Test":"TestTimedOnce"`); err != nil ||
		n != 1 {
		t.Errorf("%d failures on record, %v; want 1", n, err)
	}
}

// All packages run, two at a time while the machine is busy, and as many as asked for when it is not, and two more
// while processors are idle.
func TestPhase(t *testing.T) {
	for _, c := range []struct {
		busy, idle bool
		want       int
	}{{true, true, 2}, {true, false, 2}, {false, false, 4}, {false, true, 6}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			running, most := 0, 0
			seen := map[string]int{}
			idle := func(d time.Duration) bool {
				time.Sleep(d)
				return c.idle
			}
			r := &runner{out: io.Discard, busy: func() bool { return c.busy }, idle: idle, pause: time.Second}
			var all []pkg
			for i := range 9 {
				all = append(all, pkg{path: fmt.Sprint(i)})
			}
			r.phase("x", all, 4, 2, func(_ *runner, p pkg) {
				mu.Lock()
				running++
				most = max(most, running)
				seen[p.path]++
				mu.Unlock()
				time.Sleep(time.Minute)
				mu.Lock()
				running--
				mu.Unlock()
			})
			if most != c.want || len(seen) != len(all) || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
				t.Errorf("%+v: %d at a time, %v", c, most, seen)
			}
		})
	}
}

// A timed test is repeated when the machine is less busy, and after a while on a busy one as well.
func TestAgainOnABusyMachine(t *testing.T) {
	dir := t.TempDir() // has no test program, and is no module: go test fails at once
	for busyFor, want := range map[time.Duration]time.Duration{
		0: 0, time.Minute: time.Minute, time.Hour: mostPatience,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := &runner{out: io.Discard, programs: dir, record: io.Discard, pause: time.Second,
				busy: func() bool { return time.Since(began) < busyFor },
				late: []late{{pkg{module: dir, path: "x"}, result{tests: []test{{name: "TestTimedX", verdict: "fail"}}}}}}
			r.again()
			if took := time.Since(began); took != want || len(r.results) != 1 {
				t.Errorf("busy for %v: repeated after %v, %d results; want %v and 1", busyFor, took, len(r.results), want)
			}
		})
	}
}

func TestOfProgram(t *testing.T) {
	got := strings.Join(ofProgram([]string{"-race", "-tags", "x", "-vet=off", "-timeout", "20m", "-parallel=4",
		"-ldflags=-w"}), " ")
	if want := "-test.timeout 20m -test.parallel=4"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}
