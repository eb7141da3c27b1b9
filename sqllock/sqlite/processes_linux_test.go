package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// TestSQLiteProcessesInOrder hands a lock along a queue of 32 processes, some of which are killed
// while they wait.
func TestSQLiteProcessesInOrder(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	s := openTestSession(t, b, helperTTL)
	h := granted(t, s, exclusive("x"))
	all := startHelpers(t, path, 32)
	for _, p := range all {
		p.say("acquire x")
		p.hear("waiting")
	}
	var line []*proc
	for i, p := range all {
		if i%5 == 3 || i == 16 || i == 17 {
			must(t, p.cmd.Process.Signal(syscall.SIGKILL))
			p.cmd.Wait()
		} else {
			line = append(line, p)
		}
	}
	must(t, s.Release(t.Context(), h, 0))
	last := h.Token
	for _, p := range line { // long before a dead waiter's place expires
		token, _ := p.granted()
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
		p.say("release")
		p.hear("released")
	}
	rec, err := b.Inspect(t.Context(), "x")
	must(t, err)
	if rec.Kind != driver.Unused {
		t.Errorf("left over: %+v", rec)
	}
	checkIntegrity(t, b)
}

// TestSQLiteProcessesKilled kills holders with kill -9: the next process gets the lock long before
// the lease expires.
func TestSQLiteProcessesKilled(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	all := startHelpers(t, path, 6)
	all[0].say("acquire x")
	first := all[0].hear("granted")
	all[0].back = append(all[0].back, strings.Join(first, " ")) // for the loop below
	for _, p := range all[1:] {
		p.say("acquire x")
		p.hear("waiting")
	}
	var last uint64
	for i, p := range all {
		token, _ := p.granted()
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
		if i == len(all)-1 {
			break
		}
		killed := host.Now()
		must(t, p.cmd.Process.Signal(syscall.SIGKILL))
		next := all[i+1]
		line := next.hear("granted")
		next.back = append(next.back, strings.Join(line, " ")) // for the next iteration
		var at int64
		_, err := fmt.Sscan(line[2], &at)
		must(t, err)
		t.Logf("killed holder passed on after %v", time.Duration(at-killed))
	}
	checkIntegrity(t, b)
}

// TestSQLiteProcessesCreate lets many processes find at once that the file does not exist.
func TestSQLiteProcessesCreate(t *testing.T) {
	for range 5 {
		path := storePath(t)
		all := startHelpers(t, path, 8)
		for i, p := range all {
			p.say(fmt.Sprint("acquire ", i))
		}
		for _, p := range all {
			p.granted()
		}
		left, err := filepath.Glob(path + ".new-*")
		if must(t, err); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
		checkIntegrity(t, openTest(t, path, nil))
	}
}

// TestSQLiteSlowBuilder: a process waits for another that builds the file, as long as calls wait for a
// locked file.
func TestSQLiteSlowBuilder(t *testing.T) {
	path := storePath(t)
	builder, err := host.OpenGate(path + "-gate")
	must(t, err)
	defer func() { must(t, builder.Close()) }()
	if !builder.Lock(t.Context(), time.Minute) {
		t.Fatal("the gate is locked")
	}
	start := time.Now()
	b, err := Open(path, nil)
	if took := time.Since(start); !errors.Is(err, driver.ErrUnavailable) || took < busyLimit {
		t.Errorf("Open = %v, %v after %v; want ErrUnavailable after %v", b, err, took, busyLimit)
	}
	builder.Unlock()
	openTest(t, path, nil)
}

// TestSQLiteProcessStopped stops a process that has the file's write lock. Others are refused in
// bounded time, and continue when it does.
func TestSQLiteProcessStopped(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	s := openTestSession(t, b, helperTTL)
	p := startHelper(t, path)
	p.say("stall")
	p.hear("stalled")
	must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := s.Acquire(ctx, exclusive("x")); return err },
		func(ctx context.Context) error { _, err := s.Acquire(ctx, permits("y", 1, 2)); return err },
		func(ctx context.Context) error { return s.Cancel(ctx, "x", "nobody") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		err := call(ctx)
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the file is locked: %v; want ErrUnavailable and the ctx's error", err)
		}
		if d := time.Since(start); d >= busyLimit { // a call that ignores ctx takes all of it
			t.Errorf("returned after %v; the ctx had 100 ms", d)
		}
	}
	if _, err := s.Acquire(context.Background(), exclusive("x")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a ctx without deadline: %v; want ErrUnavailable", err)
	}
	if _, err := b.Inspect(t.Context(), "x"); err != nil { // readers do not wait
		t.Error(err)
	}
	must(t, p.cmd.Process.Signal(syscall.SIGKILL))
	granted(t, s, exclusive("x"))
	checkIntegrity(t, b)
}

// round is one grant in a helper's loop.
type round struct {
	token    uint64
	from, to int64
	who      int
}

// contend lets n processes take one name in turn, and returns their rounds, by token.
func contend(t testing.TB, path string, n, rounds int, hold time.Duration) []round {
	t.Helper()
	all := startHelpers(t, path, n)
	for _, p := range all { // all of them run before the first begins
		p.say("acquire ready/" + fmt.Sprint(p.cmd.Process.Pid))
		p.granted()
	}
	for _, p := range all {
		p.say(fmt.Sprintf("loop x %d %v", rounds, hold))
	}
	var got []round
	for i, p := range all {
		for range rounds {
			r := round{who: i}
			f := p.hear("round")
			if _, err := fmt.Sscan(f[1]+" "+f[2]+" "+f[3], &r.token, &r.from, &r.to); err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		p.hear("done")
	}
	slices.SortFunc(got, func(a, b round) int { return cmp.Compare(a.token, b.token) })
	return got
}

func TestSQLiteProcessesExclude(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	got := contend(t, path, 8, 50, 0)
	for i := 1; i < len(got); i++ {
		if got[i].token == got[i-1].token {
			t.Errorf("token %d given out twice", got[i].token)
		}
		if got[i].from < got[i-1].to {
			t.Errorf("token %d was held before %d was released", got[i].token, got[i-1].token)
		}
	}
	checkIntegrity(t, b)
}

// BenchmarkSQLiteHandOver measures from the start of a release in one process to the grant in the
// next, with the lock held for 2 ms.
func BenchmarkSQLiteHandOver(b *testing.B) {
	for _, n := range []int{2, 32} {
		b.Run(fmt.Sprint(n, "-processes"), func(b *testing.B) {
			path := storePath(b)
			openTest(b, path, nil)
			var took []time.Duration
			for range b.N {
				got := contend(b, path, n, 640/n, 2*time.Millisecond)
				for i := 1; i < len(got); i++ {
					if got[i].who != got[i-1].who {
						took = append(took, time.Duration(got[i].from-got[i-1].to))
					}
				}
			}
			b.ReportMetric(quantile(took, 0.5), "p50-µs")
			b.ReportMetric(quantile(took, 0.99), "p99-µs")
			b.ReportMetric(quantile(took, 1), "max-µs")
			b.ReportMetric(100*float64(len(took))/float64(640*b.N), "%-to-another")
		})
	}
}
