//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	b := newBench(t)
	script := filepath.Join(b.dir, "noline")
	if err := os.WriteFile(script, []byte("exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	badshell := filepath.Join(b.dir, "badshell")
	if err := os.WriteFile(badshell, []byte("#!/no/such/shell\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []string { return append([]string{"run"}, args...) }
	for name, c := range map[string]struct {
		code int
		args []string
		says string // in stderr
	}{
		"wrong usage":         {64, run("--nope", "a", "--", "true"), "there is no flag --nope"},
		"success":             {0, run("a", "--", "true"), ""},
		"own code":            {7, run("a", "--", "sh", "-c", "exit 7"), ""},
		"own code 255":        {255, run("a", "--", "sh", "-c", "exit 255"), ""},
		"signal":              {128 + 15, run("a", "--", "sh", "-c", "kill -TERM $$"), ""},
		"killed":              {128 + 9, run("a", "--", "sh", "-c", "kill -KILL $$"), ""},
		"not found":           {127, run("a", "--", "no-such-command"), "no-such-command"},
		"path not found":      {127, run("a", "--", "./no-such-command"), "no-such-command"},
		"interpreter missing": {127, run("a", "--", badshell), "badshell"},
		"not executable":      {126, run("a", "--", "/etc/passwd"), "permission denied"},
		"a folder":            {126, run("a", "--", "/etc"), "/etc"},
		"no #! line":          {126, run("a", "--", script), "#!"},
		"shell":               {9, run("-c", "a", "--", "true && exit 9"), ""},
		"flags after name":    {9, run("a", "-c", "--", "exit 9"), ""},
		"nothing":             {64, nil, "holdfast run NAME -- COMMAND"},
		"also empty":          {78, run("--also", "", "a", "--", "true"), "empty"},
		"also as another":     {78, run("--limit", "2", "--also", "a", "a", "--", "true"), "different kinds"},
		"long kill-after": {78, run("--kill-after", "10s", "a", "--", "true"),
			"--kill-after 10s is too long for a TTL of 15s"},
		"empty name":     {78, run("", "--", "true"), "empty"},
		"name too long":  {78, run(strings.Repeat("n", 513), "--", "true"), "513"},
		"name not UTF-8": {78, run("\xff", "--", "true"), "UTF-8"},
		"note too long":  {78, run("--note", strings.Repeat("n", 5000), "a", "--", "true"), "note"},
		"later store": {78, append([]string{"--store", "etcd://h"}, run("a", "--", "true")...),
			"not in this version"},
		"unknown store":     {78, append([]string{"--store", "ftp://h"}, run("a", "--", "true")...), "unknown"},
		"no store":          {78, append([]string{"--store", "here"}, run("a", "--", "true")...), "no scheme"},
		"store is a folder": {77, append([]string{"--store", "sqlite:" + b.dir}, run("a", "--", "true")...), b.dir},
		"store unreachable": {69, append([]string{"--store", "redis://127.0.0.1:1"}, run("a", "--", "true")...), "refused"},
		"break nobody": {77, []string{"break", "a", "--token", "12"},
			"holdfast: a: no grant has token 12; see holdfast info\n"},
		"elect empty name": {78, []string{"elect", "", "--", "true"}, "empty"},
		"elect not found":  {127, []string{"elect", "a", "--", "no-such-command"}, "no-such-command"},
		"elect long kill": {78, []string{"--ttl", "2s", "elect", "--kill-after", "1s", "a", "--", "true"},
			"allowed are at most 666ms, or a --ttl of at least 3s"},
		"nobody leads":       {75, []string{"leader", "a"}, "nobody leads a"},
		"leader empty name":  {78, []string{"leader", "--watch", ""}, "empty"},
		"no limit to clear":  {77, []string{"sem", "limit", "a", "--clear"}, "holdfast: a has no limit that is set\n"},
		"no limit to use":    {78, run("--permits", "2", "a", "--", "true"), "NAME M\", or give --limit M"},
		"latch long id":      {78, []string{"latch", "down", "a", "--id", strings.Repeat("n", 513)}, "512"},
		"latch empty name":   {78, []string{"latch", "wait", ""}, "empty"},
		"down without latch": {77, []string{"latch", "down", "a"}, "holdfast: there is no latch a\n"},
		"wait without latch": {77, []string{"latch", "wait", "a"}, "holdfast: there is no latch a\n"},
		"wait 0 no latch":    {77, []string{"latch", "wait", "-w", "0", "a"}, "holdfast: there is no latch a\n"},
		"rm without latch":   {77, []string{"latch", "rm", "a"}, "holdfast: there is no latch a\n"},
		"version":            {0, []string{"version"}, ""},
		"completion":         {0, []string{"completion", "bash"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t, b.dir, b.env}
			_, stderr := b.want(c.code, c.args...)
			if !strings.Contains(stderr, c.says) {
				t.Errorf("stderr has no %q: %s", c.says, stderr)
			}
			if c.says == "" && stderr != "" {
				t.Errorf("stderr: %s", stderr)
			}
		})
	}
}

// A result that cannot be written has an exit code of its own.
func TestOutputCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = full.Close() }()
	b := newBench(t)
	for _, args := range [][]string{{"version"}, {"help"}, {"--version"}, {"completion", "bash"}, {"info", "a"}} {
		p := b.prepare(args...)
		p.Stdout = full
		p.begin()
		if code := p.code(); code != 74 || p.err.String() != "holdfast: the output cannot be written: write /dev/stdout: no space left on device\n" {
			t.Errorf("%v: exit code %d, %q", args, code, p.err.String())
		}
	}
}

// A command that cannot be run does not wait for the lock first.
func TestNotFoundDoesNotWait(t *testing.T) {
	b := newBench(t)
	b.holder("a")
	b.want(127, "run", "a", "--", "no-such-command")
}

// holder runs a command that holds the lock until the test ends.
func (b *bench) holder(name string, flags ...string) *process {
	b.Helper()
	p := b.start(append(append([]string{"run"}, flags...), name, "--", "sh", "-c",
		"echo $$ >$D/holder; exec sleep 1000")...)
	b.file("holder")
	return p
}

func TestBusy(t *testing.T) {
	b := newBench(t)
	b.holder("a", "--note", "release 12", "--label", "ticket=OPS-12")
	_, stderr := b.want(75, "run", "-n", "a", "--", "touch", "ran")
	for _, part := range []string{`a is held by `, `"sh" for `, `lease `, `"release 12"`, "ticket=OPS-12"} {
		if !strings.Contains(stderr, part) {
			t.Errorf("%q is not in %q", part, stderr)
		}
	}
	b.want(75, "run", "-w", "0", "a", "--", "touch", "ran")
	// These times are long enough for an answer. Without one the store would be reported, not the holder.
	b.want(75, "run", "-w", "1.5", "a", "--", "touch", "ran")
	b.want(75, "run", "-w", "1500ms", "a", "--", "touch", "ran")
	b.want(3, "run", "-n", "-E", "3", "a", "--", "touch", "ran")
	for _, how := range [][]string{{"-n"}, {"-w", "1.5"}} {
		args := append(append([]string{"run", "--skip-ok"}, how...), "a", "--", "touch", "ran")
		if _, stderr := b.want(0, args...); stderr != "" {
			t.Errorf("--skip-ok is not silent: %s", stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
		t.Error("a command ran without the lock")
	}
	b.want(0, "run", "-n", "b", "--", "true") // another name
}

func TestNoHome(t *testing.T) {
	b := newBench(t)
	b.env = []string{"PATH=" + os.Getenv("PATH")}
	if _, stderr := b.want(78, "run", "a", "--", "true"); !strings.Contains(stderr, "HOME") {
		t.Error(stderr)
	}
	b.env = append(b.env, "HOME="+b.dir, "XDG_STATE_HOME=relative")
	b.want(0, "run", "a", "--", "true")
	info, err := os.Stat(filepath.Join(b.dir, ".local/state/holdfast"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, err := os.Stat(filepath.Join(b.dir, ".local/state/holdfast/locks.db")); err != nil {
		t.Error(err)
	}
}
