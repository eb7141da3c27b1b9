package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun runs tests of a module of its own.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds modules")
	}
	const first = `if os.WriteFile("once", nil, 0o600); !again { t.Fatal("the first time") }`
	for name, c := range map[string]struct {
		body  string        // of TestX
		main  string        // a TestMain
		stood time.Duration // each time
		code  int
		runs  int // of TestX
	}{
		"passes":                    {body: "", stood: time.Second, code: 0, runs: 1},
		"fails once, stood still":   {body: first, stood: still, code: 0, runs: 2},
		"fails once, went on":       {body: first, stood: still - 1, code: 1, runs: 1},
		"fails always":              {body: "t.Fatal()", stood: time.Second, code: 1, runs: 3},
		"a data race":               {body: `t.Error("WARNING: DATA RACE")` + "\n" + `fmt.Println("WARNING: DATA RACE")`, stood: time.Second, code: 1, runs: 1},
		"a panic":                   {body: `panic("x")`, stood: time.Second, code: 1, runs: 1},
		"a panic elsewhere":         {body: `done := make(chan int); go func() { defer close(done); var m map[int]int; m[1] = 1 }(); <-done`, stood: time.Second, code: 1, runs: 1},
		"a random history":          {body: `t.Error("[rapid] failed after 3 tests")`, stood: time.Second, code: 1, runs: 1},
		"a wrong grant":             {body: `t.Error("token 2 is granted beside token 1")`, stood: time.Second, code: 1, runs: 1},
		"does not build":            {body: "x", stood: time.Second, code: 1, runs: 0},
		"no test's failure":         {main: "func TestMain(m *testing.M) { m.Run(); os.Exit(1) }", stood: time.Second, code: 1, runs: 1},
		"very many fail":            {body: "t.Fatal()", main: thirty(), stood: time.Second, code: 1, runs: 1},
		"another test is not rerun": {body: "", main: "func TestY(t *testing.T) { " + first + " }", stood: time.Second, code: 0, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			runs := filepath.Join(dir, "runs")
			write(t, filepath.Join(dir, "go.mod"), "module example.org/m\n\ngo 1.26\n")
			write(t, filepath.Join(dir, "m_test.go"), `package m

import (
	"fmt"
	"os"
	"testing"
)

var again = func() bool { _, err := os.Stat("once"); return err == nil }()

func TestX(t *testing.T) {
	f, _ := os.OpenFile("runs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	fmt.Fprint(f, "x")
	f.Close()
	`+c.body+`
}

`+c.main)
			t.Chdir(dir)
			var out bytes.Buffer
			m := machine{watch: func() func() time.Duration { return func() time.Duration { return c.stood } }}
			code := m.run([]string{"-vet=off", "--", "./..."}, &out)
			ran, _ := os.ReadFile(runs)
			if code != c.code || len(ran) != c.runs {
				t.Errorf("exit code %d after %d runs; want %d after %d\n%s", code, len(ran), c.code, c.runs, out.String())
			}
		})
	}
	if code := (machine{}).run([]string{"./..."}, &bytes.Buffer{}); code != 2 {
		t.Errorf("without --: exit code %d", code)
	}
}

// thirty are more tests that fail.
func thirty() (text string) {
	for i := range 30 {
		text += fmt.Sprintf("func Test%d(t *testing.T) { t.Fatal() }\n", i)
	}
	return text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWait: the machine goes on when it has not stood still for a while, and is not waited for for ever.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stood := []time.Duration{time.Second, still, still - 1}
		m := machine{calm: time.Second, patience: time.Minute, watch: func() func() time.Duration {
			return func() time.Duration { d := stood[0]; stood = append(stood[1:], time.Hour); return d }
		}}
		for _, want := range []time.Duration{3 * time.Second, time.Minute} {
			begin := time.Now()
			if m.wait(); time.Since(begin) != want {
				t.Errorf("waited for %v; want %v", time.Since(begin), want)
			}
		}
	})
}

func TestFailures(t *testing.T) {
	failed, ok := failures([]byte(`ok  	example.org/a	0.1s
--- FAIL: TestA (0.00s)
    --- FAIL: TestA/b (0.00s)
        a_test.go:1: b
--- FAIL: TestB (1.20s)
FAIL
FAIL	example.org/b	1.300s
ok  	example.org/c	0.1s
--- FAIL: TestC (0.00s)
FAIL
FAIL	example.org/d	0.003s
FAIL
`))
	want := []failure{{"example.org/b", []string{"TestA", "TestB"}}, {"example.org/d", []string{"TestC"}}}
	if !ok || !reflect.DeepEqual(failed, want) {
		t.Errorf("%v, %v; want %v", failed, ok, want)
	}
}
