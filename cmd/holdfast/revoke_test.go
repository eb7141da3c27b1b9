//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A holder that is asked to release gets the signal of --on-revoke, and the history has who asked,
// and why. A break does the same with the holder's message.
func TestRevoke(t *testing.T) {
	onStores(t, "", func(b *bench) {
		const name = "revoked"
		p := b.start("--ttl", brokenSoon.String(), "run", "--history", "20", "--on-revoke", "USR1", name, "--", "sh", "-c",
			"trap 'echo asked; exit 5' USR1; echo $$ >$D/ready; while :; do sleep 0.05; done")
		b.pid("ready")
		token := b.token(name)
		out, _ := b.want(0, "revoke", name, "--reason", "a fix has to go out", "--wait", "60")
		if !strings.HasPrefix(out, fmt.Sprintf("asked: %s, token %s, held by ", name, token)) {
			b.Error(out)
		}
		if code := p.code(); code != 5 || p.out.String() != "asked\n" {
			b.Errorf("exit code %d, stdout %q", code, p.out.String())
		}
		if stderr := p.err.String(); !strings.Contains(stderr, ": asked to release it by ") ||
			!strings.Contains(stderr, `"a fix has to go out"; sending USR1 to the command`) {
			b.Errorf("stderr %q", stderr)
		}
		b.until("the history has the release", func() bool { return len(b.events(name)) == 3 })
		got := b.events(name)
		slices.Sort(got) // the times of the last two are exact to about an exchange
		if strings.Join(got, "; ") != "asked "+token+" a fix has to go out; granted "+token+"; released "+token {
			b.Errorf("history %q", got)
		}
		b.want(77, "revoke", name)
	})
}

func TestBreakSaysWhy(t *testing.T) {
	onStores(t, "", func(b *bench) {
		const name = "broken"
		p := b.start("--ttl", brokenSoon.String(), "run", name, "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
		b.pid("ready")
		token := b.token(name)
		b.want(0, "break", name, "--token", token, "--reason", "it hangs\x1b[2J")
		if code := p.code(); code != 76 {
			b.Errorf("exit code %d", code)
		}
		if stderr := p.err.String(); !strings.Contains(stderr, "lease lost (broken by ") ||
			!strings.Contains(stderr, "it hangs") || strings.Contains(stderr, "\x1b") {
			b.Errorf("stderr %q", stderr)
		}
		if out, _ := b.want(0, "info", name); !strings.Contains(out, name+" is not in use\n") ||
			!strings.Contains(out, " broke the grant with token "+token) {
			b.Errorf("info %q", out)
		}
		if out, _ := b.want(0, "history", name); !strings.Contains(out, "broken") || strings.Contains(out, "\x1b") {
			b.Errorf("history %q", out)
		}
	})
}

// Without --on-revoke the command goes on. elect resigns and campaigns again.
func TestRevokeAsksOnly(t *testing.T) {
	b := newBench(t)
	p := b.start("--ttl", brokenSoon.String(), "run", "a", "--", "sh", "-c",
		"echo $$ >$D/ready; until [ -e $D/done ]; do sleep 0.05; done")
	b.pid("ready")
	_, stderr := b.want(75, "revoke", "a", "--token", b.token("a"), "--wait", "0")
	if !strings.Contains(stderr, "a is still held by ") {
		t.Error(stderr)
	}
	out, _ := b.want(0, "info", "a")
	if !strings.Contains(out, " has asked the holder of token "+b.token("a")+" to release it") {
		t.Error(out)
	}
	b.until("the holder shows the request", func() bool {
		return strings.Contains(p.err.String(), "it keeps the lock until the command has ended")
	})
	b.want(0, "run", "other", "--", "touch", b.dir+"/done")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.want(77, "revoke", "a", "--token", "1")
	for _, args := range [][]string{
		{"revoke"}, {"revoke", "a", "--wait", "-1"}, {"run", "--on-revoke", "KILL", "a", "--", "true"},
		{"run", "--history", "1001", "a", "--", "true"},
	} {
		b.want(64, args...)
	}
	for _, args := range [][]string{{"revoke", "free"}, {"break", "free", "--token", "1"}} { // also of a free name
		for reason, want := range map[string]string{
			strings.Repeat("x", 1025): "--reason: it has 1025 bytes; allowed are 1024",
			"\xff":                    "--reason: it is not valid UTF-8",
		} {
			if _, stderr := b.want(64, append(args, "--reason", reason)...); !strings.Contains(stderr, want) {
				t.Error(stderr)
			}
		}
		b.want(77, append(args, "--reason", strings.Repeat("x", 1024))...)
	}
}

func TestElectResigns(t *testing.T) {
	b := newBench(t)
	first := b.start("--ttl", brokenSoon.String(), "elect", "--on-revoke", "TERM", "e", "--", "sh", "-c",
		"echo x >>$D/first; exec sleep 1000")
	b.file("first")
	second := b.start("--ttl", brokenSoon.String(), "elect", "e", "--", "sh", "-c", "echo $$ >$D/second; exec sleep 1000")
	b.until("the second waits", func() bool { return b.field("e", "waiting") == "1" })
	b.want(0, "revoke", "e")
	b.pid("second")
	b.until("the first campaigns again", func() bool { return b.field("e", "waiting") == "1" })
	b.want(0, "break", "e", "--token", b.token("e"), "--reason", "so that the first leads again")
	b.until("the first leads again", func() bool {
		text, err := os.ReadFile(filepath.Join(b.dir, "first"))
		return err == nil && strings.Count(string(text), "x") == 2
	})
	b.until("the second campaigns again", func() bool {
		return strings.Contains(second.err.String(), "campaigning again")
	})
	for _, p := range []*process{first, second} {
		p.signal(syscall.SIGTERM)
		if code := p.code(); code != 143 {
			t.Errorf("exit code %d", code)
		}
	}
}

// events returns the history of a name in short.
func (b *bench) events(name string) (list []string) {
	b.Helper()
	out, _ := b.want(0, "history", name, "-o", "json")
	var entries []struct{ Event, Token, Reason string }
	if err := json.Unmarshal([]byte(out), &entries); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, e := range entries {
		list = append(list, strings.TrimSpace(e.Event+" "+e.Token+" "+e.Reason))
	}
	return list
}

// A run whose history the store does not take says so, and runs.
func TestHistoryIsNotTaken(t *testing.T) {
	b := newBench(t)
	server := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL=redis://"+server.Addr)
	b.want(0, "run", "--history", "5", "a", "--", "true")
	server.Do(`EVAL "return redis.call('SET', redis.call('KEYS', '*:h:a')[1], 'x')" 0`)
	_, stderr := b.want(0, "run", "--history", "5", "a", "--", "true")
	if !strings.Contains(stderr, "holdfast: a: not added to its history: ") || !strings.Contains(stderr, ":h:a") {
		t.Errorf("%q", stderr)
	}
	if _, stderr := b.want(0, "run", "a", "--", "true"); stderr != "" {
		t.Errorf("%q", stderr)
	}
}
