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

// shortLease is the TTL of the first. That of the second outlasts every outage here. A tenth of it is
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

// trial is a contest: where it is played, how the command of the first behaves, and the commands.
// At full size all are played everywhere.
type trial struct {
	name      string
	where     int
	behaviour string
	args      []string
}

// These are where a trial is played: on a Redis server, on the embedded store.
const (
	onRedis = 1 << iota
	onSQLite
)

// contests has the first hold the lock and work, and the second wait, and runs f. Afterwards the
// second works and the first has ended, and nobody may have worked beside the other.
func (tr trial) contests(t *testing.T, f func(*contest)) {
	play := func(t *testing.T, c *contest) {
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
		prepare func(*testing.T, *contest)
	}{"redis": {onRedis, freezesRedis}, "sqlite": {onSQLite, freezesSQLite}} {
		if tr.where&on.bit != 0 || testenv.Deep() {
			t.Run(tr.name+"/"+name, func(t *testing.T) {
				c := &contest{bench: newBench(t)}
				on.prepare(t, c)
				play(t, c)
			})
		}
	}
}

func freezesRedis(t *testing.T, c *contest) {
	r := testenv.Redis(t)
	c.env = append(c.env, "HOLDFAST_URL="+r.URL())
	c.freeze = func() func() { r.Pause(); return r.Continue }
}

func freezesSQLite(t *testing.T, c *contest) {
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
func TestTimedSilentStore(t *testing.T) {
	for _, tr := range []trial{
		{"run", onRedis | onSQLite, "stubborn", []string{"run"}},
		{"also", onRedis, "stubborn", []string{"run", "--also", "b"}},
		{"writer", 0, "stubborn", []string{"run", "-x", "--min-hold", "10ms"}},
		{"semaphore", 0, "stubborn", []string{"run", "--limit", "1"}},
		{"slow", 0, "slow", []string{"run"}},
		{"parent", onSQLite, "parent", []string{"run"}},
	} {
		tr.contests(t, func(c *contest) { c.outage(); c.lost() })
	}
	trial{"elect", onRedis, "stubborn", []string{"elect"}}.contests(t, func(c *contest) {
		c.outage()
		c.until("the first campaigns again", func() bool { return !running(c.jobA) })
	})
	trial{"interrupted twice", onSQLite, "stubborn", []string{"run"}}.contests(t, func(c *contest) {
		thaw := c.freeze()
		for range 2 {
			time.Sleep(shortLease * 11 / 20)
			c.a.signal(syscall.SIGINT)
		}
		thaw()
		c.lost()
	})
}

// holdfast is stopped alone, and its command goes on: until the lease ends, not longer.
func TestTimedStoppedAlone(t *testing.T) {
	for _, tr := range []trial{
		{"run", onRedis | onSQLite, "stubborn", []string{"run"}},
		{"elect", onRedis, "stubborn", []string{"elect"}},
		{"also", 0, "stubborn", []string{"run", "--also", "b"}},
	} {
		tr.contests(t, func(c *contest) {
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
func TestTimedStoppedGroup(t *testing.T) {
	trial{"run", onSQLite, "stubborn", []string{"run"}}.contests(t, func(c *contest) {
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
	for _, tr := range []trial{{"stubborn", onRedis, "stubborn", []string{"run"}}, {"parent", onSQLite, "parent", []string{"run"}}} {
		tr.contests(t, func(c *contest) {
			c.a.signal(syscall.SIGKILL)
			c.a.code()
		})
	}
}

// The guard is killed, or stopped: another one does its work when holdfast is stopped.
func TestTimedGuardKilled(t *testing.T) {
	for s, where := range map[syscall.Signal]int{syscall.SIGKILL: onRedis, syscall.SIGSTOP: onSQLite} {
		trial{s.String(), where, "stubborn", []string{"run"}}.contests(t, func(c *contest) {
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
