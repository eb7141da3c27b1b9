//go:build unix

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestEnvironment(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "HOLDFAST_LOCK=stale", "HOLDFAST_TOKEN=stale", "OTHER=kept")
	out, _ := b.want(0, "run", "deploy/prod", "--", "env")
	env := map[string]string{}
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, twice := env[k]; twice {
			t.Errorf("%s occurs twice", k)
		}
		env[k] = v
	}
	if env["HOLDFAST_LOCK"] != "deploy/prod" || env["OTHER"] != "kept" {
		t.Error(out)
	}
	if n, err := strconv.ParseUint(env["HOLDFAST_TOKEN"], 10, 64); err != nil || n == 0 {
		t.Errorf("token %q", env["HOLDFAST_TOKEN"])
	}
	host, _ := os.Hostname()
	if !regexp.MustCompile(`^.+@` + regexp.QuoteMeta(host) + `:\d+$`).MatchString(env["HOLDFAST_OWNER"]) {
		t.Errorf("owner %q", env["HOLDFAST_OWNER"])
	}
}

// Standard input and output pass through byte for byte, and no other descriptor is open.
func TestDescriptors(t *testing.T) {
	b := newBench(t)
	data := bytes.Repeat([]byte("\x00\xff\n binary"), 100_000)
	p := b.prepare("run", "a", "--", "cat")
	p.Stdin = bytes.NewReader(data)
	p.begin()
	if code := p.code(); code != 0 || p.out.String() != string(data) {
		t.Errorf("exit code %d, %d of %d bytes", code, len(p.out.String()), len(data))
	}
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("needs /proc")
	}
	// This process may have inherited descriptors, which are open with and without holdfast.
	const list = "cd /proc/$$/fd && echo *"
	plain := exec.Command("sh", "-c", list)
	plain.Stderr = new(bytes.Buffer) // a pipe, as below
	want, err := plain.Output()
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := b.want(0, "run", "a", "--", "sh", "-c", list); out != string(want) {
		t.Errorf("open descriptors: %s; without holdfast: %s", out, want)
	}
}

// A run of the same name inside would wait for itself forever.
func TestNested(t *testing.T) {
	b := newBench(t)
	_, stderr := b.want(64, "run", "a", "--", binary, "run", "b", "--", binary, "run", "a", "--", "true")
	if !strings.Contains(stderr, `the surrounding holdfast command already holds a; waiting for it would never end`) {
		t.Error(stderr)
	}
	b.want(75, "run", "a", "--", binary, "run", "-n", "a", "--", "true")
	for _, kind := range [][]string{{"-x"}, {"-s"}, {"--limit", "2"}} {
		_, stderr := b.want(64, append(append([]string{"run"}, kind...), "a", "--", binary, "wait", "a")...)
		if !strings.Contains(stderr, `already holds a; waiting for it would never end`) {
			t.Error(stderr)
		}
	}
	b.want(75, "run", "a", "--", binary, "wait", "-w", "0", "a")
	b.want(0, "run", "a", "--", binary, "wait", "b")
	b.want(0, "run", "a", "--", binary, "run", "b", "--", "true")
	other := "sqlite:" + filepath.Join(b.dir, "other.db")
	b.want(0, "run", "a", "--", binary, "--store", other, "run", "a", "--", "true")
	// A process that outlives its lock is no longer part of the run: it has only the variable.
	held, _ := b.want(0, "run", "a", "--", "sh", "-c", "echo $HOLDFAST_HELD")
	b.env = append(b.env, "HOLDFAST_HELD="+strings.TrimSpace(held))
	b.want(0, "run", "a", "--", "true")
	b.env[len(b.env)-1] = "HOLDFAST_HELD==;= nonsense 12=x"
	b.want(0, "run", "a", "--", "true")
}

// Many processes count in a file; each reads and writes the whole file.
func TestExclusion(t *testing.T) {
	b := newBench(t)
	const workers, rounds = 6, 5
	file := filepath.Join(b.dir, "count")
	if err := os.WriteFile(file, []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				p := b.start("run", "count", "--", "sh", "-c",
					`n=$(cat count); echo $((n+1)) >count; echo $HOLDFAST_TOKEN >>tokens`)
				if code := p.code(); code != 0 {
					t.Errorf("exit code %d: %s", code, p.err.String())
				}
			}
		})
	}
	wg.Wait()
	if n := b.pid("count"); n != workers*rounds {
		t.Errorf("counted %d, want %d", n, workers*rounds)
	}
	last := uint64(0)
	for text := range strings.FieldsSeq(b.file("tokens")) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n <= last {
			t.Errorf("token %s after %d", text, last)
		}
		last = n
	}
}

// No password gets into messages or the environment, also for invalid URLs.
func TestPasswordIsNotShown(t *testing.T) {
	b := newBench(t)
	const canary = "c4nary"
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, url := range []string{
		"redis://user:" + canary + "@127.0.0.1:1/0",
		"redis://:" + canary + "@127.0.0.1:1",
		"redis://:" + canary + "@127.0.0.1:notaport",
		"redis://:" + canary + "%zz@127.0.0.1:1",
		"redis://:" + canary + "@[::1",
		"redis://user:" + canary + "@no-such-host.invalid",
		"rediss://user:" + canary + "@127.0.0.1:1",
		"redis+unix://:" + canary + "@/no/such/socket",
		"redis://127.0.0.1:1?password=" + canary,
		"redis://:" + canary + "@127.0.0.1:1/db",
		"postgres://user:" + canary + "@h/db",
		"nope://user:" + canary + "@h/db",
		"no:p://user:" + canary + "@h",
		"redis://user:" + canary + "@" + silent.Addr().String(),
	} {
		for _, command := range [][]string{{"run", "a", "--", "true"}, {"ls"}, {"info", "a"},
			{"break", "a", "--token", "1"}} {
			if command[0] != "run" && strings.Contains(url, silent.Addr().String()) {
				continue // slow
			}
			b := &bench{t, b.dir, append(b.env, "HOLDFAST_URL="+url)}
			code, stdout, stderr := b.run(command...)
			if code != 69 && code != 77 && code != 78 {
				t.Errorf("%s: exit code %d: %s", url, code, stderr)
			}
			if strings.Contains(stdout+stderr, canary) || stderr == "" {
				t.Errorf("%s: %q", url, stdout+stderr)
			}
		}
	}
	b.env = append(b.env, "HOLDFAST_URL=redis://user:"+canary+"@h:1/2")
	out, _ := b.want(0, "--store", "memory:", "run", "a", "--", "sh", "-c", "echo $HOLDFAST_URL")
	if out != "redis://user@h:1/2\n" {
		t.Errorf("the command's URL is %q", out)
	}
}

func TestOutputFormats(t *testing.T) {
	b := newBench(t)
	if out, stderr := b.want(0, "ls"); out != "" || !strings.Contains(stderr, "no lock") {
		t.Errorf("%q %q", out, stderr)
	}
	if out, _ := b.want(0, "ls", "-o", "json"); strings.Join(strings.Fields(out),
		"") != `{"schema":"holdfast/v1","locks":[]}` {
		t.Error(out)
	}
	if out, _ := b.want(0, "info", "x"); out != "x is not in use\n" {
		t.Error(out)
	}
	b.holder("deploy/prod", "--note", "a \x1b[31mred\x1b[0m note", "--label", "k=v")
	w := b.start("run", "deploy/prod", "--", "true")
	b.until("a waiter", func() bool { return b.field("deploy/prod", "waiting ") == "1" })

	type holder struct {
		Token, User, Host, Program, Note string
		PID                              int
		Labels                           map[string]string
	}
	type record struct {
		Schema, Name, Kind, Token string
		Holders, Waiters          []holder
		Waiting                   int
	}
	check := func(what string, r record) {
		t.Helper()
		if r.Name != "deploy/prod" || r.Kind != "lock" || r.Waiting != 1 || len(r.Holders) != 1 || len(r.Waiters) != 1 {
			t.Fatalf("%s: %+v", what, r)
		}
		h, q := r.Holders[0], r.Waiters[0]
		if h.Token != r.Token || h.Program != "sh" || h.Note != "a \x1b[31mred\x1b[0m note" || h.Labels["k"] != "v" ||
			h.PID == 0 {
			t.Errorf("%s: holder %+v", what, h)
		}
		if q.Token != "" || q.Program != "true" || q.PID != w.Process.Pid {
			t.Errorf("%s: waiter %+v", what, q)
		}
	}
	decode := func(out string, v any) {
		t.Helper()
		if err := json.Unmarshal([]byte(out), v); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var list struct {
		Schema string
		Locks  []record
	}
	out, _ := b.want(0, "ls", "-o", "json", "deploy/")
	decode(out, &list)
	if list.Schema != "holdfast/v1" || len(list.Locks) != 1 {
		t.Fatal(out)
	}
	check("ls -o json", list.Locks[0])
	for _, args := range [][]string{{"ls", "-o", "jsonl"}, {"info", "-o", "json", "deploy/prod"},
		{"info", "-o", "jsonl", "deploy/prod"}} {
		var r record
		out, _ := b.want(0, args...)
		decode(out, &r)
		if r.Schema != "holdfast/v1" {
			t.Error(out)
		}
		check(fmt.Sprint(args), r)
	}
	if out, _ := b.want(0, "ls", "-o", "name"); out != "deploy/prod\n" {
		t.Errorf("%q", out)
	}
	if out, _ := b.want(0, "ls", "other/", "-o", "name"); out != "" {
		t.Errorf("%q", out)
	}
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "wide"}, {"info", "deploy/prod"},
		{"info", "-o", "wide", "deploy/prod"}} {
		out, _ := b.want(0, args...)
		if strings.Contains(out, "\x1b") || !strings.Contains(out, "deploy/prod") || !strings.Contains(out, " sh ") {
			t.Errorf("%v: %q", args, out)
		}
	}
}
