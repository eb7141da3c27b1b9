//go:build unix

package main_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestQuorum(t *testing.T) {
	b := newBench(t)
	var servers []*testenv.RedisServer
	var addrs []string
	for range 3 {
		s := testenv.RedisACL(t, []string{"user locker on >c4nary ~* &* +@all"})
		s.Do("ACL SETUSER default resetpass >c4nary") // or doctor would report it
		servers, addrs = append(servers, s), append(addrs, s.Addr)
	}
	url := "redis+quorum://locker:c4nary@" + strings.Join(addrs, ",")
	b.env = append(b.env, "HOLDFAST_URL="+url)
	if _, stderr := b.want(69, "--ttl", "1s", "run", "a", "--", "true"); !strings.Contains(stderr, "holdfast init") ||
		strings.Contains(stderr, "c4nary") {
		t.Errorf("a new quorum: %s", stderr)
	}
	line := regexp.MustCompile(`(?m)^holdfast: waiting for a: store unavailable: .*has no vote for another`)
	waiter, limited := b.start("run", "a", "--", "true"), b.start("run", "-w", "5", "a", "--", "true")
	b.until("the reason of the wait", func() bool { return line.MatchString(waiter.err.String()) })
	waiter.end()
	if code := limited.code(); code != 69 {
		t.Errorf("a wait for a new quorum: exit code %d: %s", code, limited.err.String())
	}
	if out, _ := b.want(0, "init"); !strings.Contains(out, "the servers vote: ") || strings.Contains(out, "c4nary") {
		t.Errorf("init: %s", out)
	}
	b.want(0, "init")
	b.want(7, "run", "a", "--", "sh", "-c", "exit 7")
	if out, stderr := b.want(0, "doctor"); !strings.Contains(out, "quorum.size") ||
		strings.Contains(out+stderr, "c4nary") {
		t.Errorf("doctor: %s%s", out, stderr)
	}
	servers[1].Kill()
	out, stderr := b.want(0, "run", "--note", "outer", "a", "--", "env", "HOLDFAST_URL="+url, "sh", "-c",
		`$H run -n a -- true; echo busy $?; $H run a -- true; echo nested $?; $H ls -o name; $H info -o wide a`)
	for _, want := range []string{"busy 75\n", "nested 64\n", "\na\n", "outer"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q (%s)", want, out, stderr)
		}
	}
	servers[1].Start()
	if _, stderr := b.want(77, "init"); !strings.Contains(stderr, "not new") { // one has restarted
		t.Errorf("init of a quorum in use: %s", stderr)
	}
	if _, stderr := b.want(78, "--ttl", "2m", "run", "a", "--", "true"); !strings.Contains(stderr, "quarantine") {
		t.Errorf("a TTL above the quarantine: %s", stderr)
	}
	if _, stderr := b.want(78, "run", "--limit", "2", "a", "--", "true"); !strings.Contains(stderr, "semaphore") {
		t.Errorf("permits: %s", stderr)
	}
	servers[0].Kill()
	servers[2].Kill()
	b.want(69, "run", "-n", "a", "--", "true")
}

// TestQuorumTickPastALeftover: nobody has run the job, though its name is not free. So one of the
// hosts runs it.
func TestQuorumTickPastALeftover(t *testing.T) {
	for what, away := range map[string]func(*testenv.RedisServer){
		"refuses connections": (*testenv.RedisServer).Kill,
		"does not answer":     (*testenv.RedisServer).Pause,
	} {
		t.Run(what, func(t *testing.T) { tickPastALeftover(t, away) })
	}
}

func tickPastALeftover(t *testing.T, away func(*testenv.RedisServer)) {
	b := newBench(t)
	away(b.tooFewServers("20s", "job"))
	if _, stderr := b.want(75, "run", "-n", "--every", "1h", "--skip-ok", "job", "--", "true"); !strings.Contains(stderr,
		"too few servers") && !strings.Contains(stderr, "enough servers") {
		t.Errorf("without waiting: %s", stderr)
	}
	var hosts []*process
	for range 3 {
		hosts = append(hosts, b.start("run", "--every", "1h", "--skip-ok", "job", "--", "echo", "ran"))
	}
	loud := b.start("run", "--every", "1h", "job", "--", "true")
	ran := ""
	for _, h := range hosts {
		if code := h.code(); code != 0 || h.err.String() != "" {
			t.Errorf("a host: exit code %d, %q", code, h.err.String())
		}
		ran += h.out.String()
	}
	code := loud.code()
	if said := loud.err.String(); strings.Count(said, "; trying again for ") != 1 || code != 0 && code != 75 {
		t.Errorf("without --skip-ok: exit code %d, %q", code, said)
	}
	if want := map[int]string{0: "", 75: "ran\n"}[code]; ran != want {
		t.Errorf("with exit code %d of another host: %q; want %q", code, ran, want)
	}
	if out, stderr := b.want(0, "run", "--every", "1h", "--skip-ok", "job", "--", "echo", "ran"); out+stderr != "" {
		t.Errorf("in the same tick: %q, %q", out, stderr)
	}
}
