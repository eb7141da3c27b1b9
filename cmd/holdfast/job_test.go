//go:build unix

package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// jobVariable makes this test program a job; its value is the behaviour of the job.
const jobVariable = "HOLDFAST_TEST_JOB"

// job is a command under a lock. Every few milliseconds it appends its token to the file "work",
// until a signal ends it. Its behaviours are: "stubborn" ignores TERM and INT, "slow" ends a minute
// after TERM, "parent" leaves a stubborn job behind in its group when it ends.
func job(behaviour string) {
	work, err := os.OpenFile(filepath.Join(os.Getenv("D"), "work"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	ends := make(chan os.Signal, 1)
	var end <-chan time.Time
	switch behaviour {
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	case "slow":
		signal.Notify(ends, syscall.SIGTERM)
	case "parent":
		exe, err := os.Executable()
		if err != nil {
			panic(err)
		}
		child := exec.Command(exe)
		child.Env = append(os.Environ(), jobVariable+"=stubborn")
		if err := child.Start(); err != nil {
			panic(err)
		}
	}
	for {
		// One write is one line, so the order of the lines is that of the work.
		fmt.Fprintf(work, "%s %d %d\n", os.Getenv("HOLDFAST_TOKEN"), os.Getpid(), time.Now().UnixNano())
		select {
		case <-ends:
			end = time.After(time.Minute)
		case <-end:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// line is one line of the file "work".
type line struct {
	token uint64
	pid   int
	at    time.Duration // on a clock that all jobs share
}

// work returns the lines that the jobs have written so far.
func (b *bench) work() (lines []line) {
	text, _ := os.ReadFile(filepath.Join(b.dir, "work"))
	for s := range strings.Lines(string(text)) {
		fields := strings.Fields(s)
		if len(fields) != 3 || !strings.HasSuffix(s, "\n") {
			b.Fatalf("a line of the jobs: %q", s)
		}
		token, err1 := strconv.ParseUint(fields[0], 10, 64)
		pid, err2 := strconv.Atoi(fields[1])
		at, err3 := strconv.ParseInt(fields[2], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			b.Fatalf("a line of the jobs: %q: %v", s, err)
		}
		lines = append(lines, line{token, pid, time.Duration(at)})
	}
	return lines
}

// worked waits until the nth holder has done some work, and returns its process.
func (b *bench) worked(n int) (pid int) {
	b.Helper()
	const some = 10
	b.until(fmt.Sprintf("work of holder %d", n), func() bool {
		var tokens []uint64 // in the order of their first lines
		lines := 0
		for _, l := range b.work() {
			if !slices.Contains(tokens, l.token) {
				tokens = append(tokens, l.token)
			}
			if len(tokens) >= n && l.token == tokens[n-1] {
				lines, pid = lines+1, l.pid
			}
		}
		return lines >= some
	})
	return pid
}

// together returns for how long a job kept working after the first line of a later holder.
func together(lines []line) (d time.Duration, worked bool) {
	var newest line
	for _, l := range lines {
		switch {
		case l.token > newest.token:
			newest = l
		case l.token < newest.token:
			d, worked = max(d, l.at-newest.at), true
		}
	}
	return d, worked
}

// alone checks that no job worked after the first line of a later holder.
func (b *bench) alone() {
	b.Helper()
	if d, worked := together(b.work()); worked {
		b.Errorf("two jobs worked at once for %v", d.Round(time.Millisecond))
	}
}

func TestTogether(t *testing.T) {
	for name, c := range map[string]struct {
		lines  []line
		worked bool
		d      time.Duration
	}{
		"one after the other": {[]line{{1, 10, 5}, {1, 12, 6}, {2, 11, 7}, {2, 13, 8}}, false, 0},
		"at once":             {[]line{{1, 10, 5}, {2, 11, 6}, {1, 10, 7}, {2, 11, 8}, {1, 10, 9}}, true, 3},
		"late by one line":    {[]line{{1, 10, 5}, {2, 11, 6}, {1, 10, 6}}, true, 0},
		"a lower token later": {[]line{{3, 10, 5}, {2, 11, 6}}, true, 1},
	} {
		if d, worked := together(c.lines); worked != c.worked || d != c.d {
			t.Errorf("%s: %v, %v", name, d, worked)
		}
	}
}
