//go:build unix

package main_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestLatch(t *testing.T) {
	onStores(t, "mysql", func(b *bench) {
		prints := func(want string, args ...string) {
			b.Helper()
			if out, _ := b.want(0, append([]string{"latch"}, args...)...); out != want+"\n" {
				b.Errorf("latch %q: %q, want %q", args, out, want)
			}
		}
		prints("made: built, 2 left", "set", "built", "2")
		prints("exists: built, and keeps its count", "set", "built", "5")
		if _, stderr := b.want(75, "latch", "wait", "-w", "0", "built"); !strings.Contains(stderr,
			"latch built is not at zero after 0s: 2 left") {
			b.Error(stderr)
		}
		b.want(75, "latch", "wait", "built", "-w", "200ms")
		gone := b.start("latch", "wait", "built")
		b.until("a message", func() bool {
			return slow.ReplaceAllString(gone.err.String(), "") == "waiting for built: 2 left\n"
		})
		gone.end()
		waiter := b.start("latch", "wait", "built")
		limited := b.start("latch", "wait", "built", "-w", "1h")
		prints("1", "down", "built", "--id", "linux")
		prints("1", "down", "built", "--id", "linux")
		if info, _ := b.want(0, "info", "built"); !strings.Contains(info, "1 left") {
			b.Error(info)
		}
		if out, _ := b.want(0, "info", "-o", "json", "built"); !strings.Contains(out, `"count": 1`) {
			b.Error(out)
		}
		if out, _ := b.want(0, "ls"); !strings.Contains(out, "1 left") {
			b.Error(out)
		}
		for _, p := range []*process{waiter, limited} {
			if err := p.Process.Signal(syscall.Signal(0)); err != nil {
				b.Errorf("a waiter has ended early: %v, %s", err, p.err.String())
			}
		}
		prints("0", "down", "built")
		for _, p := range []*process{waiter, limited} {
			if code := p.code(); code != 0 || p.out.String() != "" {
				b.Errorf("exit code %d: %s", code, p.err.String())
			}
		}
		prints("0", "down", "built")
		b.want(0, "latch", "wait", "built")
		b.want(0, "latch", "wait", "-w", "0", "built")
		b.want(78, "run", "built", "--", "true")
		b.stay("lock", "a")
		b.file("lock")
		b.want(78, "latch", "set", "a", "1")
		b.want(78, "latch", "rm", "a")
	})
}

// The removal of a latch ends its waiters with an error, and frees the name for other kinds.
func TestLatchRemove(t *testing.T) {
	onStores(t, "zookeeper", func(b *bench) {
		b.want(0, "latch", "set", "built", "1")
		waiter := b.start("latch", "wait", "built")
		b.until("a message", func() bool {
			return slow.ReplaceAllString(waiter.err.String(), "") == "waiting for built: 1 left\n"
		})
		if out, _ := b.want(0, "latch", "rm", "built"); out != "removed: built\n" {
			b.Error(out)
		}
		if code := waiter.code(); code != 77 || !strings.Contains(waiter.err.String(), "there is no latch built") {
			b.Errorf("exit code %d: %s", code, waiter.err.String())
		}
		b.want(77, "latch", "rm", "built")
		b.want(0, "run", "-n", "built", "--", "true")
	})
}

// An outage is an error of its own, not a latch above zero.
func TestLatchWaitWithoutStore(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	b.want(0, "latch", "set", "built", "1")
	p := b.start("latch", "wait", "built", "-w", "10")
	b.until("a message", func() bool { return slow.ReplaceAllString(p.err.String(), "") != "" })
	r.Kill()
	if code := p.code(); code != 69 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}
