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

// contest is two processes that want one lock, and what may happen to the first.
type contest struct {
	*bench
	freeze func() (thaw func()) // the store
	a, b   *process
	jobA   int // the command of a
}

// shortLease is the TTL of the first. That of the second outlasts every outage here.
const shortLease = 3 * time.Second

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

// contests runs f on a Redis server and on the embedded store: the first holds the lock and
// works, the second waits. Afterwards the second works and the first has ended, and nobody
// may have worked beside the other.
func contests(t *testing.T, behaviour string, args []string, f func(*contest)) {
	play := func(t *testing.T, c *contest) {
		c.a = c.worker(shortLease, behaviour, args...)
		c.a.begin()
		c.jobA = c.worked(1)
		c.b = c.worker(time.Minute, "", args...)
		c.b.begin()
		c.waiting("a", 1)
		f(c)
		c.worked(2)
		c.b.signal(syscall.SIGTERM)
		c.b.code()
		c.alone()
	}
	t.Run("redis", func(t *testing.T) {
		c := &contest{bench: newBench(t)}
		r := testenv.Redis(t)
		c.env = append(c.env, "HOLDFAST_URL="+r.URL())
		c.freeze = func() func() { r.Pause(); return r.Continue }
		play(t, c)
	})
	t.Run("sqlite", func(t *testing.T) {
		c := &contest{bench: newBench(t)}
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
		play(t, c)
	})
}

// outage freezes the store until the lease of a has run out there.
func (c *contest) outage() {
	thaw := c.freeze()
	time.Sleep(shortLease * 11 / 10) // no event tells: the store says nothing
	thaw()
}

// lost waits for the end of a, which was told that it has lost the lock.
func (c *contest) lost() {
	c.Helper()
	if code := c.a.code(); code != 76 {
		c.Errorf("exit code %d: %s", code, c.a.err.String())
	}
}

// A store that is silent for longer than a lease: the command has ended before the lock is
// given away, whatever it does about TERM.
func TestSilentStore(t *testing.T) {
	for name, args := range map[string][]string{
		"run":       {"run"},
		"also":      {"run", "--also", "b"},
		"writer":    {"run", "-x", "--min-hold", "10ms"},
		"semaphore": {"run", "--limit", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			contests(t, "stubborn", args, func(c *contest) { c.outage(); c.lost() })
		})
	}
	for _, behaviour := range []string{"slow", "parent"} {
		t.Run(behaviour, func(t *testing.T) {
			contests(t, behaviour, []string{"run"}, func(c *contest) { c.outage(); c.lost() })
		})
	}
	t.Run("elect", func(t *testing.T) {
		contests(t, "stubborn", []string{"elect"}, func(c *contest) {
			c.outage()
			c.until("the first campaigns again", func() bool { return !running(c.jobA) })
		})
	})
	t.Run("interrupted twice", func(t *testing.T) {
		contests(t, "stubborn", []string{"run"}, func(c *contest) {
			thaw := c.freeze()
			for range 2 {
				time.Sleep(shortLease * 11 / 20)
				c.a.signal(syscall.SIGINT)
			}
			thaw()
			c.lost()
		})
	})
}

// holdfast is stopped alone, and its command goes on: until the lease ends, not longer.
func TestStoppedAlone(t *testing.T) {
	for name, args := range map[string][]string{"run": {"run"}, "elect": {"elect"}, "also": {"run", "--also", "b"}} {
		t.Run(name, func(t *testing.T) {
			contests(t, "stubborn", args, func(c *contest) {
				c.a.halt()
				c.worked(2)
				c.a.signal(syscall.SIGCONT)
				c.until("the command ends", func() bool { return !running(c.jobA) })
				if name != "elect" {
					c.lost()
				}
			})
		})
	}
}

// halt stops p alone. In the embedded store it stops it between two transactions.
func (p *process) halt() {
	p.t.Helper()
	if _, err := os.Stat(filepath.Join(p.t.dir, "state/holdfast/locks.db")); err == nil {
		p.stop(syscall.SIGSTOP)
	} else {
		p.signal(syscall.SIGSTOP)
	}
}

// The group is stopped together with holdfast, and somebody continues the group alone.
func TestStoppedGroup(t *testing.T) {
	contests(t, "stubborn", []string{"run"}, func(c *contest) {
		if err := syscall.Kill(-c.jobA, syscall.SIGSTOP); err != nil {
			c.Fatal(err)
		}
		c.a.halt()
		c.worked(2)
		_ = syscall.Kill(-c.jobA, syscall.SIGCONT) // it may have ended
		time.Sleep(200 * time.Millisecond)         // no event tells that it does not go on
		c.a.signal(syscall.SIGCONT)
		c.lost()
	})
}

// holdfast is killed: its group ends before the lock is given away.
func TestKilledWorker(t *testing.T) {
	for _, behaviour := range []string{"stubborn", "parent"} {
		t.Run(behaviour, func(t *testing.T) {
			contests(t, behaviour, []string{"run"}, func(c *contest) {
				c.a.signal(syscall.SIGKILL)
				c.a.code()
			})
		})
	}
}

// The guard is killed, or stopped: another one does its work when holdfast is stopped.
func TestGuardKilled(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(s.String(), func(t *testing.T) {
			contests(t, "stubborn", []string{"run"}, func(c *contest) {
				first := c.guard()
				if err := syscall.Kill(first, s); err != nil {
					c.Fatal(err)
				}
				c.until("there is another guard", func() bool { return !running(first) && c.guard() != 0 })
				c.a.halt()
				c.worked(2)
				c.a.signal(syscall.SIGCONT)
				c.lost()
			})
		})
	}
}

// guard is the process that guards the group of a, or 0.
func (c *contest) guard() int {
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
