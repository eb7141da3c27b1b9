//go:build unix

package main_test

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// holdfast gives up a silent store soon, whatever the TTL, and reports just that: the user has set
// no deadline.
func TestSilentStoreIsGivenUp(t *testing.T) {
	addr := silentServer(t)
	for _, c := range []struct{ url, command string }{
		{"redis://" + addr, "run a -- true"}, {"redis://" + addr, "doctor"}, {"redis+cluster://" + addr, "ls"},
		{"postgres://u@" + addr + "/d", "info a"}, {"mysql://u@" + addr + "/d", "init"},
	} {
		t.Run(c.url+" "+c.command, func(t *testing.T) {
			b := newBench(t)
			_, stderr := b.want(69, append([]string{"--ttl", "1h", "--store", c.url}, strings.Fields(c.command)...)...)
			last := stderr[strings.LastIndex(strings.TrimSuffix(stderr, "\n"), "\n")+1:]
			why := "it takes connections and says nothing, so it is stopped, "
			if strings.Contains(c.url, "+cluster") { // it leads to others
				why = "the server of the URL takes connections; the silent one may be another"
			}
			if !regexp.MustCompile(
				`^holdfast: store unavailable: the store at \S+ has not answered within \d+s; ` + why + `.*\n$`).MatchString(last) {
				t.Errorf("%q", stderr)
			}
		})
	}
}

// If no server runs, the message names the address that refused, and the variable that has the URL.
func TestNobodyListens(t *testing.T) {
	b := newBench(t)
	for url, want := range map[string]string{
		"zookeeper://127.0.0.1:1,127.0.0.1:2": "zk: connect to 127.0.0.1:1: dial tcp 127.0.0.1:",
		"redis://u:s3cret@127.0.0.1:1":        "redis 127.0.0.1:1: store unavailable: dial tcp 127.0.0.1:1: ",
	} {
		b.env = append(b.env, "HOLDFAST_URL="+url)
		_, stderr := b.want(69, "ls")
		if !strings.HasPrefix(stderr, "holdfast: HOLDFAST_URL: ") || !strings.Contains(stderr, want) ||
			strings.Contains(stderr, "s3cret") ||
			!strings.HasSuffix(stderr, "connect: connection refused\n") ||
			strings.Count(stderr, "refused") != strings.Count(url, "127.0.0.1") {
			t.Errorf("%q", stderr)
		}
		if _, stderr := b.want(69, "ls", "--store", url); strings.Contains(stderr, "HOLDFAST_URL") {
			t.Errorf("%q: it was --store", stderr)
		}
	}
	b.env = append(b.env, "HOLDFAST_URL=here")
	for _, command := range []string{"ls", "doctor", "init"} {
		if _, stderr := b.want(78, command); !strings.HasPrefix(stderr,
			"holdfast: HOLDFAST_URL: invalid store URL: it has no scheme; allowed are ") {
			t.Errorf("%s: %q", command, stderr)
		}
	}
}

// silentServer returns an address that accepts connections and never answers.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// A command that waits for a silent store reports that after three seconds.
func TestSilentStoreIsMentioned(t *testing.T) {
	addr := silentServer(t)
	b := newBench(t)
	b.env = append(b.env, "HOLDFAST_URL=zookeeper://who:s3cret@"+addr)
	begin := time.Now()
	p := b.start("--ttl", "30s", "run", "a", "--", "true")
	b.until("a message", func() bool { return p.err.String() != "" })
	if quiet := time.Since(begin); quiet < 3*time.Second {
		t.Errorf("silent for %v only", quiet)
	}
	if !strings.HasPrefix(p.err.String(), "holdfast: the store at zookeeper://***@"+addr+
		" has not answered for 3s; giving up after 15s at the latest\n") {
		t.Errorf("%q", p.err.String())
	}
	p.end()
}

// A store that is given up after two seconds is not said to have more time.
func TestSilentRedisHasNoNotice(t *testing.T) {
	addr, other, third := silentServer(t), silentServer(t), silentServer(t)
	b := newBench(t)
	for _, url := range []string{"redis://" + addr, "redis+quorum://" + addr + "," + other + "," + third} {
		begin := time.Now()
		code, _, stderr := b.run("--store", url, "run", "-n", "a", "--", "true")
		if took := time.Since(begin); code != 69 || took < 2900*time.Millisecond && strings.Contains(stderr, "giving up") {
			t.Errorf("%s: exit code %d after %v: %q", url, code, took, stderr)
		}
	}
}

// The time of -w bounds the opening of a silent store too.
func TestSilentStoreIsGivenUpWithTheWait(t *testing.T) {
	addr := silentServer(t)
	b := newBench(t)
	within := regexp.MustCompile(` has not answered within (\d+)s`)
	for _, command := range []string{"run -w 1 a -- true", "latch wait -w 3 a"} {
		code, _, stderr := b.run(append([]string{"--ttl", "30s", "--store", "zookeeper://" + addr},
			strings.Fields(command)...)...)
		// The message has the time that it took, which is longer on a busy machine. Without -w it is 15 s.
		m := within.FindStringSubmatch(stderr)
		if code != 69 || m == nil || strings.Contains(stderr, "giving up") {
			t.Errorf("%s: exit code %d: %q", command, code, stderr)
			continue
		}
		if s, err := strconv.Atoi(m[1]); err != nil || s < 3 || s >= 15 {
			t.Errorf("%s: %q", command, stderr)
		}
	}
}

// A command that already waits for a lock reports that its store has become silent.
func TestStoreFallsSilent(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	b.holder("a")
	p := b.start("--ttl", "4s", "run", "a", "--", "true")
	b.waiting("a", 1)
	r.Pause()
	b.until("a message", func() bool { return strings.Contains(p.err.String(), "the store has not answered for ") })
	if code := p.code(); code != 69 || strings.Count(slow.ReplaceAllString(p.err.String(), ""), "holdfast: ") != 1 {
		t.Errorf("exit code %d: %q", code, p.err.String())
	}
}

// A refusal by the store is reported at once, in one line that says what to do.
func TestRefusedByTheStore(t *testing.T) {
	b := newBench(t)
	r := testenv.RedisACL(t, []string{"user reader on >s3cret ~* &* +@all -@write -@scripting"})
	b.env = append(b.env, "HOLDFAST_URL=redis://reader:s3cret@"+r.Addr)
	for _, command := range []string{"run", "elect"} {
		_, stderr := b.want(77, "--ttl", "40s", command, "a", "--", "true")
		if !regexp.MustCompile(`^holdfast: .*refused.*; an administrator grants it: ACL SETUSER reader \+evalsha .*\n$`).
			MatchString(stderr) {
			t.Errorf("%s: %q", command, stderr)
		}
	}
}

// A replica refuses writes; the message soon names its primary.
func TestReplicaRefuses(t *testing.T) {
	for _, command := range []string{"run", "elect"} {
		t.Run(command, func(t *testing.T) {
			b := newBench(t)
			r := testenv.Redis(t)
			r.Do("REPLICAOF 127.0.0.1 1")
			b.env = append(b.env, "HOLDFAST_URL="+r.URL())
			_, stderr := b.want(77, "--ttl", "1h", command, "a", "--", "true")
			if !strings.Contains(stderr, "replica") || !strings.Contains(stderr, "its primary is 127.0.0.1:1;") ||
				strings.Contains(stderr, "script") {
				t.Errorf("stderr: %q", stderr)
			}
		})
	}
}
