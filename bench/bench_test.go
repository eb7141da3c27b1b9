package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestParserCountsCommandsHoweverTheyAreCut(t *testing.T) {
	stream := []byte("*1\r\n$4\r\nPING\r\n" +
		// A value that looks like a command.
		"*3\r\n$3\r\nSET\r\n$11\r\n*3\r\n$1\r\n\n\n$\r\n$0\r\n\r\n" +
		"*2\r\n$7\r\nEVALSHA\r\n$2\r\n\r\n\r\n")
	for size := 1; size <= len(stream); size++ {
		var p parser
		n := 0
		for chunk := range slices.Chunk(stream, size) {
			n += p.feed(chunk)
		}
		if n != 3 {
			t.Errorf("in pieces of %d bytes: %d commands, want 3", size, n)
		}
	}
}

// openDoor is a lock that excludes no contender: a fault that the contest must detect.
type openDoor struct{}

func (openDoor) lock(ctx context.Context) error { return ctx.Err() }
func (openDoor) unlock() error                  { return nil }

type realLock struct{ c chan struct{} }

func (l realLock) lock(ctx context.Context) error {
	select {
	case l.c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l realLock) unlock() error { <-l.c; return nil }

func race(t *testing.T, k contender, until func(*contest) bool) metrics {
	t.Helper()
	r := newContest(8)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r.counting.Store(true)
	var group sync.WaitGroup
	for i := range r.participants {
		group.Go(func() { r.contend(ctx, i, k) })
	}
	for !until(r) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	r.end.Store(int64(time.Since(r.base)))
	cancel()
	group.Wait()
	if err := r.failure(); err != nil {
		t.Fatal(err)
	}
	return r.metrics()
}

func TestContestDetectsBrokenLock(t *testing.T) {
	m := race(t, openDoor{}, func(r *contest) bool { return r.violations.Load() > 0 })
	if m["violations"] == 0 {
		t.Fatal("a lock that excludes no contender was not detected")
	}
	rep := &report{Results: []*result{{Rows: []*row{{Rounds: []metrics{m}}}}}}
	if rep.violations() == 0 {
		t.Fatal("the report does not count it")
	}
}

func TestContestOfCorrectLock(t *testing.T) {
	m := race(t, realLock{make(chan struct{}, 1)}, func(r *contest) bool { return r.entered.Load() >= 1000 })
	if m["violations"] != 0 {
		t.Errorf("%v violations of a channel", m["violations"])
	}
	if m["n"] == 0 || m["p50"] > m["p99"] || m["jain"] <= 0 || m["jain"] > 1.0001 {
		t.Errorf("implausible figures: %v", m)
	}
}

func TestJudge(t *testing.T) {
	a := outcome{Events: []event{{Asked: 0, Got: 10, Left: 20, Token: 1},
		{Asked: 25, Joined: 28, Got: 45, Left: 50, Token: 3}}}
	b := outcome{Events: []event{{Asked: 5, Joined: 7, Got: 24, Left: 40, Token: 2}}}
	m := judge([]outcome{a, b}, 0, 100)
	if m["n"] != 3 || m["violations"] != 0 || m["overtaken"] != 0 || m["self"] != 0 || m["waitmax"] != 20 {
		t.Errorf("in order: %v", m)
	}
	if m["p50"] != 5 || m["jain"] < 0.89 || m["jain"] > 0.91 {
		t.Errorf("in order: %v", m)
	}
	twice := outcome{Events: []event{{Asked: 12, Got: 15, Left: 30, Token: 4}}}
	if m := judge([]outcome{a, twice}, 0, 100); m["violations"] == 0 {
		t.Errorf("held twice, and not detected: %v", m)
	}
	late := outcome{Events: []event{{Asked: 8, Got: 21, Left: 22, Token: 2}}}
	passed := outcome{Events: []event{{Asked: 5, Joined: 7, Got: 24, Left: 40, Token: 3}}}
	if m := judge([]outcome{late, passed}, 0, 100); m["overtaken"] != 1 {
		t.Errorf("overtaken, and not detected: %v", m)
	}
}

func TestCheck(t *testing.T) {
	rep := &report{Results: []*result{
		{Scenario: "pair", Rows: []*row{
			{Library: ours, Median: metrics{"sent": 2, "p50": 120, "allocs": 13}},
			{Library: floor, Median: metrics{"p50": 100}},
		}},
		{Scenario: "names/64", Rows: []*row{
			{Library: ours, Median: metrics{"persec": 900}},
			{Library: floor, Median: metrics{"persec": 1000}},
			{Library: "redsync", Median: metrics{"persec": 800}},
			{Library: "rueidislock", Median: metrics{"persec": 850}},
		}},
	}}
	var out bytes.Buffer
	bad := rep.check(&out)
	for want, n := range map[string]int{"| pass |": 3, "| FAIL |": 2, "| not measured |": len(targets) - 5} {
		if got := strings.Count(out.String(), want); got != n {
			t.Errorf("%d lines have %q, want %d:\n%s", got, want, n, out.String())
		}
	}
	if bad != len(targets)-3 {
		t.Errorf("%d missed, want %d", bad, len(targets)-3)
	}
}

func TestSummarize(t *testing.T) {
	r := &result{Rows: []*row{{Rounds: []metrics{{"x": 3}, {"x": 1}, {"x": 2}}}, {Rounds: []metrics{{"x": 1}, {"x": 2}}},
		{}}}
	r.summarize()
	if r.Rows[0].Median["x"] != 2 || r.Rows[0].Spread["x"] != 1 || r.Rows[1].Median["x"] != 1.5 ||
		len(r.Rows[2].Median) != 0 {
		t.Errorf("%+v %+v %+v", r.Rows[0], r.Rows[1], r.Rows[2])
	}
}

// duration is how long a test measures: long enough for some operations of each library.
func duration() time.Duration {
	return time.Duration(testenv.Rounds(100, 300)) * time.Millisecond
}

// measured calls f, again for longer if no contender got the lock: the machine may have been busy with something else.
func measured(b *testbed, f func() (metrics, error)) (m metrics, err error) {
	first := b.duration
	defer func() { b.duration = first }()
	for ; ; b.duration *= 4 {
		if m, err = f(); !errors.Is(err, errNobody) || b.duration > 64*first {
			return m, err
		}
	}
}

func TestMeasured(t *testing.T) {
	b := &testbed{duration: time.Second}
	var asked []time.Duration
	m, err := measured(b, func() (metrics, error) {
		if asked = append(asked, b.duration); b.duration < 5*time.Second {
			return nil, errNobody
		}
		return metrics{"n": 1}, nil
	})
	want := []time.Duration{time.Second, 4 * time.Second, 16 * time.Second}
	if err != nil || m["n"] != 1 || !slices.Equal(asked, want) || b.duration != time.Second {
		t.Errorf("%v, %v after %v", m, err, asked)
	}
	if _, err := measured(b, func() (metrics, error) { return nil, errNobody }); !errors.Is(err, errNobody) {
		t.Error(err)
	}
}

// few reports whether a busy machine made too few operations for figures per operation.
func few(m metrics) bool { return m["n"] < 100 }

// about reports whether a count per operation is per, with some requests of the connections
// themselves, such as pings and greetings. On a busy machine there are few operations.
func about(m metrics, key string, per float64) bool {
	more := (m[key] - per) * m["n"]
	return more > -0.01*m["n"] && more <= 10+0.01*m["n"]
}

// TestMain lets the test binary be a worker, as the program itself can be.
func TestMain(m *testing.M) {
	if job := os.Getenv(workerEnv); job != "" {
		exit(runWorker(job))
	}
	os.Exit(m.Run())
}

// TestProcesses runs real processes on a real file.
func TestProcesses(t *testing.T) {
	for _, name := range []string{"flock", "holdfast-sqlite"} {
		b := &testbed{dir: t.TempDir(), duration: duration()}
		m, err := measured(b, func() (metrics, error) { return runProcesses(t.Context(), b, name, 3, time.Millisecond) })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m["violations"] != 0 || m["overtaken"] != 0 || m["n"] == 0 {
			t.Errorf("%s: %v", name, m)
		}
	}
	if _, err := runProcesses(t.Context(), &testbed{dir: "/dev/null/nowhere", duration: time.Second}, "holdfast-sqlite", 2,
		0); err == nil {
		t.Error("an impossible folder: no error")
	}
	_, _, err := spawn(t.Context(), job{Library: "holdfast-sqlite", Dir: "/dev/null/nowhere"}, 2, time.Second)
	if err == nil || !strings.Contains(err.Error(), "worker: ") {
		t.Errorf("a worker that cannot start: %v", err)
	}
}

// The confidence of the median's interval is that of the binomial distribution.
func TestInterval(t *testing.T) {
	for n, want := range map[int]struct {
		skip       int
		confidence float64
	}{1: {0, 0}, 2: {0, 0.5}, 3: {0, 0.75}, 5: {0, 0.9375}, 6: {0, 0.96875}, 8: {0, 1 - 2.0/256}, 9: {1, 1 - 20.0/512},
		15: {3, 1 - 2*(1+15+105+455)/32768.0}} {
		if skip, confidence := interval(n); skip != want.skip || math.Abs(confidence-want.confidence) > 1e-9 {
			t.Errorf("%d rounds: %d, %v; want %d, %v", n, skip, confidence, want.skip, want.confidence)
		}
	}
}

// A table says of which figure its interval is, and shows none of a single round.
func TestPrintInterval(t *testing.T) {
	for n, want := range map[int]string{1: "| a | 100 | – | – |\n", 3: "| a | 101 | 100 – 102 (75 %) | 2 % |\n"} {
		r := &result{Rows: []*row{{Library: "a"}}, columns: []column{num("heap", "heap bytes")}}
		for i := range n {
			r.Rows[0].Rounds = append(r.Rows[0].Rounds, metrics{"heap": float64(100 + i)})
		}
		r.summarize()
		var b strings.Builder
		r.print(&b)
		if !strings.Contains(b.String(), "| interval of heap bytes | spread |") || !strings.Contains(b.String(), want) {
			t.Errorf("%d rounds:\n%s", n, b.String())
		}
	}
}
