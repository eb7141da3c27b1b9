//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// brokenSoon is a TTL that no stall of the machine outlasts. It renews every three seconds, and a
// holder learns at a renewal that its lock was broken.
const brokenSoon = 9 * time.Second

// candidate campaigns; its command writes its environment, its process and the term.
func (b *bench) candidate(ttl time.Duration, name string, flags ...string) *process {
	b.Helper()
	args := append([]string{"--ttl", ttl.String(), "elect", "--name", name, "--address", name + ":80"}, flags...)
	return b.start(append(args, "boss", "--", "sh", "-c",
		"env >$D/"+name+".env; echo $$ >$D/"+name+".pid; echo $HOLDFAST_TOKEN >>$D/"+name+"; exec sleep 1000")...)
}

// term waits until the candidate leads for the nth time.
func (b *bench) term(name string, n int) (term uint64, child int) {
	b.Helper()
	b.until(fmt.Sprintf("term %d of %s", n, name), func() bool {
		terms := strings.Fields(b.file(name))
		if len(terms) < n {
			return false
		}
		term, _ = strconv.ParseUint(terms[n-1], 10, 64)
		return true
	})
	return term, b.pid(name + ".pid")
}

// A broken leadership passes to the next candidate, and the old leader campaigns again. The
// leadership of a killed leader passes on too.
func TestElect(t *testing.T) {
	onStores(t, "postgres", func(b *bench) {
		watch := b.start("--ttl", "300ms", "leader", "--watch", "boss")
		seen := ""
		sees := func(line string) {
			b.Helper()
			seen += line + "\n"
			b.until(line, func() bool { return regexp.MustCompile("^" + seen + "$").MatchString(watch.out.String()) })
		}
		leads := func(name string, term uint64) string {
			return fmt.Sprintf(`%s at %s:80 leads since \S+Z, term %d`, name, name, term)
		}
		sees("nobody leads")
		one := b.candidate(brokenSoon, "one", "--note", "n", "--label", "k=v")
		first, child := b.term("one", 1)
		sees(leads("one", first))
		env := "\n" + b.file("one.env") + "\n"
		for _, want := range []string{"\nHOLDFAST_LOCK=boss\n", fmt.Sprintf("\nHOLDFAST_TOKEN=%d\n", first),
			fmt.Sprintf(":%d\n", one.Process.Pid)} {
			if !strings.Contains(env, want) {
				b.Errorf("the environment has no %q: %s", want, env)
			}
		}
		if info, _ := b.want(0, "info", "boss"); !strings.Contains(info, "n  ") ||
			!strings.Contains(info, "address=one:80 candidate=one k=v") {
			b.Error(info)
		}
		two := b.candidate(4*time.Second, "two") // which is killed
		b.waiting("boss", 1)
		if out, _ := b.want(0, "leader", "boss"); !regexp.MustCompile("^" + leads("one", first) + "\n$").MatchString(out) {
			b.Error(out)
		}

		b.want(0, "break", "boss", "--token", fmt.Sprint(first))
		second, other := b.term("two", 1)
		sees(leads("two", second))
		b.until("the first command ends", func() bool { return !running(child) })
		b.waiting("boss", 1)
		if stderr := one.err.String(); !strings.Contains(stderr, "boss: lease lost (broken by") ||
			!strings.Contains(stderr, "boss: campaigning again") {
			b.Error(stderr)
		}

		two.signal(syscall.SIGKILL)
		third, child := b.term("one", 2)
		sees(leads("one", third))
		b.until("the second command ends", func() bool { return !running(other) })
		if first >= second || second >= third {
			b.Errorf("terms %d, %d, %d", first, second, third)
		}

		var j struct {
			Schema, Name string
			Leader       *struct {
				Name, Address, Term, Note string
				PID                       int
			}
		}
		out, _ := b.want(0, "leader", "-o", "json", "boss")
		if err := json.Unmarshal([]byte(out), &j); err != nil || j.Schema != "holdfast/v1" || j.Name != "boss" ||
			j.Leader == nil ||
			j.Leader.Name != "one" || j.Leader.Address != "one:80" || j.Leader.Term != fmt.Sprint(third) ||
			j.Leader.PID != one.Process.Pid || j.Leader.Note != "n" {
			b.Error(err, out)
		}
		one.signal(syscall.SIGTERM) // ends the command
		if code := one.code(); code != 128+15 || running(child) {
			b.Errorf("exit code %d, %v", code, running(child))
		}
		sees("nobody leads")
		if out, _ := b.want(75, "leader", "-o", "jsonl", "boss"); !strings.Contains(out, `"leader":null`) {
			b.Error(out)
		}
		watch.signal(syscall.SIGINT)
		if code := watch.code(); code != 128+2 {
			b.Errorf("exit code %d", code)
		}
	})
}

// A command that ends by itself ends the campaign, and its leader resigns.
func TestElectEnds(t *testing.T) {
	b := newBench(t)
	b.want(7, "elect", "-c", "boss", "--", "exit 7")
	b.want(75, "leader", "boss")
	b.want(0, "elect", "boss", "--", "true")
	out, _ := b.want(0, "elect", "boss", "--", binary, "leader", "boss")
	if !regexp.MustCompile(`^holdfast \(\S+@\S+:\d+\) leads since \S+, term \d+\n$`).MatchString(out) {
		t.Error(out)
	}
	if _, stderr := b.want(64, "elect", "boss", "--", binary, "elect", "boss", "--", "true"); !strings.Contains(stderr,
		"already holds boss") {
		t.Error(stderr)
	}
}

func TestElectSignals(t *testing.T) {
	b := newBench(t)
	first := b.candidate(time.Minute, "one")
	b.term("one", 1)
	second := b.candidate(time.Minute, "two")
	b.waiting("boss", 1)
	second.end()
	b.waiting("boss", 0)
	first.end()

	// After TERM while it ends its command, it does not campaign again.
	p := b.start("--ttl", "15s", "elect", "--kill-after", "5s", "boss", "--", "sh", "-c",
		"trap '' TERM; echo $$ >>$D/stubborn; while :; do sleep 0.05; done")
	child := b.pid("stubborn")
	b.want(0, "break", "boss", "--token", b.token("boss"))
	b.until("the end begins", func() bool {
		return strings.Contains(p.err.String(), "ending the command (TERM, KILL after ")
	})
	p.end()
	if running(child) || b.file("stubborn") != fmt.Sprint(child) {
		t.Error("the command runs")
	}
}

// An outage of the store ends the leadership, but not the campaign.
func TestElectRidesOutAnOutage(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	p := b.candidate(2*time.Second, "one")
	first, child := b.term("one", 1)
	r.Kill()
	b.until("the command ends", func() bool { return !running(child) })
	b.until("a message about it", func() bool { return strings.Contains(p.err.String(), "; still campaigning\n") })
	time.Sleep(time.Second) // further campaigns fail silently: there is no event to wait for
	r.Start()
	if second, _ := b.term("one", 2); second <= first {
		t.Errorf("term %d after %d", second, first)
	}
	p.end()
	if n := strings.Count(p.err.String(), "; still campaigning\n"); n != 1 {
		t.Errorf("reported %d times: %s", n, p.err.String())
	}
}

// The message about a silent store counts from its last answer, through all campaigns.
func TestElectCountsTheSilence(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	p := b.candidate(5*time.Second, "one")
	b.term("one", 1)
	r.Pause()
	told := regexp.MustCompile(`(?m)^holdfast: the store has not answered for (\d+)s$`)
	b.until("a long silence", func() bool {
		for _, m := range told.FindAllStringSubmatch(p.err.String(), -1) {
			if n, _ := strconv.Atoi(m[1]); n >= 12 {
				return true
			}
		}
		return false
	})
	r.Continue()
	b.term("one", 2)
	p.end()
	if strings.Contains("\n"+p.err.String(), "\nthe store") {
		t.Errorf("%s", p.err.String())
	}
}

// Between two leaderships the process stops as any other, and the second command inherits the same
// signal actions as the first.
func TestElectKeepsSignalActions(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("needs /proc")
	}
	b := newBench(t)
	mask := func(pid int, key string) (m uint64) {
		t.Helper()
		status, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, key+":\t"); ok {
				m, _ = strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			}
		}
		return m
	}
	const stops = 1<<(syscall.SIGTSTP-1) | 1<<(syscall.SIGTTOU-1)
	blocker := b.stay("blocker", "boss")
	b.file("blocker")
	p := b.candidate(brokenSoon, "one")
	b.waiting("boss", 1)
	before := [2]uint64{mask(p.Process.Pid, "SigCgt") & stops, mask(p.Process.Pid, "SigIgn") & stops}
	blocker.end()
	_, child := b.term("one", 1)
	ignored := mask(child, "SigIgn")
	caught := mask(p.Process.Pid, "SigCgt") & stops
	if caught == 0 {
		t.Error("the stop of a terminal is not caught while the command runs")
	}
	next := b.stay("next", "boss")
	b.waiting("boss", 1)
	b.want(0, "break", "boss", "--token", b.token("boss"))
	b.file("next")
	b.waiting("boss", 1)
	if now := [2]uint64{mask(p.Process.Pid, "SigCgt") & stops, mask(p.Process.Pid, "SigIgn") & stops}; now != before {
		t.Errorf("caught and ignored: %x, before the first leadership %x", now, before)
	}
	next.end()
	_, child = b.term("one", 2)
	if m := mask(child, "SigIgn"); m != ignored {
		t.Errorf("the second command ignores signals %x, the first %x", m, ignored)
	}
	if m := mask(p.Process.Pid, "SigCgt") & stops; m != caught {
		t.Errorf("caught: %x in the second leadership, %x in the first", m, caught)
	}
	p.end()
}
