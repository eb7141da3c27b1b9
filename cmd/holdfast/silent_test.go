//go:build unix

package main_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A store that does not answer is given up soon, whatever the TTL.
func TestSilentStoreIsGivenUp(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	r.Pause()
	p := b.start("--ttl", "1h", "run", "a", "--", "true")
	if code := p.code(); code != 69 || !strings.HasSuffix(p.err.String(), "; \"holdfast doctor\" may say more about the store\n") {
		t.Errorf("exit code %d: %q", code, p.err.String())
	}
}

// Those that ask it are told that it is silent.
func TestSilentStoreIsMentioned(t *testing.T) {
	b := newBench(t)
	z := testenv.ZooKeeper(t, longSessions)
	b.env = append(b.env, "HOLDFAST_URL=zookeeper://who:s3cret@"+z.Addr)
	z.Pause()
	begin := time.Now()
	p := b.start("--ttl", "30s", "run", "a", "--", "true")
	b.until("a word", func() bool { return p.err.String() != "" })
	if quiet := time.Since(begin); quiet < 2*time.Second {
		t.Errorf("silent for %v only", quiet)
	}
	if !strings.HasPrefix(p.err.String(), "holdfast: the store at zookeeper://***@"+z.Addr+" has not answered for 2s; giving up after 15s\n") {
		t.Errorf("%q", p.err.String())
	}
	p.end()
}

// So it is to those that wait already.
func TestStoreFallsSilent(t *testing.T) {
	b := newBench(t)
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	b.holder("a")
	p := b.start("--ttl", "4s", "run", "a", "--", "true")
	b.waiting("a", 1)
	r.Pause()
	b.until("a word", func() bool { return strings.Contains(p.err.String(), "the store has not answered for ") })
	if code := p.code(); code != 69 || strings.Count(p.err.String(), "holdfast: ") != 1 {
		t.Errorf("exit code %d: %q", code, p.err.String())
	}
}

// A store that answers no is told at once, in one line.
func TestRefusedByTheStore(t *testing.T) {
	b := newBench(t)
	r := testenv.RedisACL(t, []string{"user reader on >s3cret ~* &* +@all -@write -@scripting"})
	b.env = append(b.env, "HOLDFAST_URL=redis://reader:s3cret@"+r.Addr)
	for _, command := range []string{"run", "elect"} {
		_, stderr := b.want(77, "--ttl", "40s", command, "a", "--", "true")
		if !regexp.MustCompile(`^holdfast: .*refused.*; "holdfast doctor" may say more about the store\n$`).MatchString(stderr) {
			t.Errorf("%s: %q", command, stderr)
		}
	}
}

// A replica refuses writes; who it is a replica of is told soon, and in words.
func TestReplicaRefuses(t *testing.T) {
	for _, command := range []string{"run", "elect"} {
		t.Run(command, func(t *testing.T) {
			b := newBench(t)
			r := testenv.Redis(t)
			r.Do("REPLICAOF 127.0.0.1 1")
			b.env = append(b.env, "HOLDFAST_URL="+r.URL())
			_, stderr := b.want(77, "--ttl", "1h", command, "a", "--", "true")
			if !strings.Contains(stderr, "replica") || !strings.Contains(stderr, "its primary is 127.0.0.1:1;") || strings.Contains(stderr, "script") {
				t.Errorf("stderr: %q", stderr)
			}
		})
	}
}
