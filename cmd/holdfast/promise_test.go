//go:build linux

package main_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// rivals are two processes that want one lock. The first one gets it.
type rivals struct {
	*bench
	freeze func() (thaw func()) // makes the store silent
	a, b   *process
	jobA   int // the command of a
}

// shortLease is the TTL of a. The lease of b outlasts every outage here. A tenth of shortLease is
// between KILL and the end of the lease at the store.
const shortLease = 4 * time.Second

// worker prepares a holdfast whose command is a job.
func (b *bench) worker(ttl time.Duration, behaviour string, args ...string) *process {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := b.prepare(append(append([]string{"--ttl", ttl.String()}, args...), "a", "--", exe)...)
	p.Env = append(p.Env, jobVariable+"="+behaviour)
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p
}

// scenario is a test of rivals: its stores, the behaviour of the job of a, and the arguments of
// both. At full size all run on all stores.
type scenario struct {
	name      string
	where     int
	behaviour string
	args      []string
}

// The stores of a scenario: a Redis server and the embedded store.
const (
	onRedis = 1 << iota
	onSQLite
)

// run has a hold the lock and work, and b wait, and calls f. Afterwards b works and a has ended.
// The two must never have worked at the same time.
func (tr scenario) run(t *testing.T, f func(*rivals)) {
	play := func(t *testing.T, c *rivals) {
		c.a = c.worker(shortLease, tr.behaviour, tr.args...)
		c.a.begin()
		c.jobA = c.worked(1)
		c.b = c.worker(time.Minute, "", tr.args...)
		c.b.begin()
		c.waiting("a", 1)
		f(c)
		c.worked(2)
		c.b.signal(syscall.SIGTERM)
		c.b.code()
		c.alone()
	}
	for name, on := range map[string]struct {
		bit     int
		prepare func(*testing.T, *rivals)
	}{"redis": {onRedis, freezesRedis}, "sqlite": {onSQLite, freezesSQLite}} {
		if tr.where&on.bit != 0 || testenv.Deep() {
			t.Run(tr.name+"/"+name, func(t *testing.T) {
				c := &rivals{bench: newBench(t)}
				on.prepare(t, c)
				play(t, c)
			})
		}
	}
}

func freezesRedis(t *testing.T, c *rivals) {
	r := testenv.Redis(t)
	c.env = append(c.env, "HOLDFAST_URL="+r.URL())
	c.freeze = func() func() { r.Pause(); return r.Continue }
}

func freezesSQLite(t *testing.T, c *rivals) {
	c.freeze = func() func() {
		db, err := sql.Open("sqlite", filepath.Join(c.dir, "state/holdfast/locks.db")+"?_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		return func() { db.Close() }
	}
}

// outage freezes the store until the lease of a has expired there.
func (c *rivals) outage() {
	thaw := c.freeze()
	time.Sleep(shortLease * 11 / 10) // no event: the store is silent
	thaw()
}

// lost waits until a has ended because it lost the lock.
func (c *rivals) lost() {
	c.Helper()
	if code := c.a.code(); code != 76 {
		c.Errorf("exit code %d: %s", code, c.a.err.String())
	}
}

// The store is silent for longer than a lease. The command has ended before the store grants the
// lock again, even if it ignores TERM.
func TestTimedSilentStore(t *testing.T) {
	for _, tr := range []scenario{
		{"run", onRedis | onSQLite, "stubborn", []string{"run"}},
		{"also", onRedis, "stubborn", []string{"run", "--also", "b"}},
		{"writer", 0, "stubborn", []string{"run", "-x", "--min-hold", "10ms"}},
		{"semaphore", 0, "stubborn", []string{"run", "--limit", "1"}},
		{"slow", 0, "slow", []string{"run"}},
		{"parent", onSQLite, "parent", []string{"run"}},
	} {
		tr.run(t, func(c *rivals) { c.outage(); c.lost() })
	}
	scenario{"elect", onRedis, "stubborn", []string{"elect"}}.run(t, func(c *rivals) {
		c.outage()
		c.until("the first campaigns again", func() bool { return !running(c.jobA) })
	})
	scenario{"interrupted twice", onSQLite, "stubborn", []string{"run"}}.run(t, func(c *rivals) {
		thaw := c.freeze()
		for range 2 {
			time.Sleep(shortLease * 11 / 20)
			c.a.signal(syscall.SIGINT)
		}
		thaw()
		c.lost()
	})
}

// Only holdfast is stopped. Its command continues until the lease ends, but not longer.
func TestTimedStoppedAlone(t *testing.T) {
	for _, tr := range []scenario{
		{"run", onRedis | onSQLite, "stubborn", []string{"run"}},
		{"elect", onRedis, "stubborn", []string{"elect"}},
		{"also", 0, "stubborn", []string{"run", "--also", "b"}},
	} {
		tr.run(t, func(c *rivals) {
			c.a.halt()
			c.worked(2)
			c.a.signal(syscall.SIGCONT)
			c.until("the command ends", func() bool { return !running(c.jobA) })
			if tr.name != "elect" {
				c.lost()
			}
		})
	}
}

// holdfast and the group are stopped, and then only the group is continued.
func TestTimedStoppedGroup(t *testing.T) {
	scenario{"run", onSQLite, "stubborn", []string{"run"}}.run(t, func(c *rivals) {
		if err := syscall.Kill(-c.jobA, syscall.SIGSTOP); err != nil {
			c.Fatal(err)
		}
		c.a.halt()
		c.worked(2)
		_ = syscall.Kill(-c.jobA, syscall.SIGCONT) // it may have ended
		time.Sleep(200 * time.Millisecond)         // no event shows that it does not continue
		c.a.signal(syscall.SIGCONT)
		c.lost()
	})
}

// holdfast is killed. Its group ends before the store grants the lock again.
func TestKilledWorker(t *testing.T) {
	for _, tr := range []scenario{{"stubborn", onRedis, "stubborn", []string{"run", "--ttl", brokenSoon.String()}},
		{"parent", onSQLite, "parent", []string{"run", "--ttl", brokenSoon.String()}}} {
		tr.run(t, func(c *rivals) {
			c.a.signal(syscall.SIGKILL)
			c.a.code()
		})
	}
}

// holdfast is killed, and its guard does not run for a while. The embedded store notices the death of a process, but
// does not grant the lock before the guard has ended the group.
func TestKilledWorkerBeforeItsGuard(t *testing.T) {
	// The lease must not end before the guard goes on.
	scenario{"run", onSQLite, "parent", []string{"run", "--ttl", "20s"}}.run(t, func(c *rivals) {
		guard := c.guard()
		t.Cleanup(func() { _ = syscall.Kill(guard, syscall.SIGCONT) })
		c.a.halt() // so that it does not replace the guard
		if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
			c.Fatal(err)
		}
		c.a.signal(syscall.SIGKILL)
		c.a.code()
		time.Sleep(500 * time.Millisecond) // no event shows that nothing is granted
		if err := syscall.Kill(guard, syscall.SIGCONT); err != nil {
			c.Fatal(err)
		}
	})
}

// The guard is killed or stopped. Another guard does its work when holdfast is stopped.
func TestTimedGuardKilled(t *testing.T) {
	for s, where := range map[syscall.Signal]int{syscall.SIGKILL: onRedis, syscall.SIGSTOP: onSQLite} {
		scenario{s.String(), where, "stubborn", []string{"run"}}.run(t, func(c *rivals) {
			first := c.guard()
			if err := syscall.Kill(first, s); err != nil {
				c.Fatal(err)
			}
			c.until("there is another guard", func() bool { return !running(first) && c.guardNow() != 0 })
			c.a.halt()
			c.worked(2)
			c.a.signal(syscall.SIGCONT)
			c.lost()
		})
	}
}

// guard returns the process that guards the group of a. It waits until there is one.
func (c *rivals) guard() (pid int) {
	c.Helper()
	c.until("there is a guard", func() bool { pid = c.guardNow(); return pid != 0 })
	return pid
}

// guardNow returns the process that guards the group of a, or 0.
func (c *rivals) guardNow() int {
	c.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.a.Process.Pid))
	if err != nil {
		c.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(text)) {
			if name, _ := os.ReadFile("/proc/" + pid + "/cmdline"); string(name) == "lock-guard\x00" {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	return 0
}
