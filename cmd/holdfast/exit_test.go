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
		"unknown command":     {64, []string{"rnu"}, "rnu"},
		"unknown flag":        {64, run("--nope", "a", "--", "true"), "--nope"},
		"neither way":         {64, run("--exclusive=false", "a", "--", "true"), "--shared"},
		"both ways":           {64, run("-s", "-x", "a", "--", "true"), "exclusive shared"},
		"shared permits":      {64, run("-s", "--limit", "2", "a", "--", "true"), "limit shared"},
		"exclusive permits":   {64, run("-x", "--limit", "2", "a", "--", "true"), "exclusive limit"},
		"permits of what":     {64, run("--permits", "2", "a", "--", "true"), "--limit"},
		"too many permits":    {64, run("--permits", "3", "--limit", "2", "a", "--", "true"), "is 2"},
		"no permits":          {64, run("--permits", "0", "--limit", "2", "a", "--", "true"), "--permits 0"},
		"zero limit":          {64, run("--limit", "0", "a", "--", "true"), "--limit 0"},
		"limit too large":     {78, run("--limit", "2000000000", "a", "--", "true"), "limit"},
		"also empty":          {78, run("--also", "", "a", "--", "true"), "empty"},
		"also as another":     {78, run("--limit", "2", "--also", "a", "a", "--", "true"), "different kinds"},
		"every with wait":     {64, run("--every", "1h", "-w", "1", "a", "--", "true"), "every wait"},
		"every zero":          {64, run("--every", "0", "a", "--", "true"), "--every"},
		"every too long":      {78, run("--every", "20000h", "a", "--", "true"), "MinHold"},
		"no name":             {64, run(), "name of the lock is missing"},
		"no command":          {64, run("a"), "command is missing"},
		"nothing after --":    {64, run("a", "--"), "command is missing"},
		"empty command":       {64, run("a", "--", ""), "command is empty"},
		"no --":               {64, run("a", "true"), "put -- before the command: holdfast run a -- true"},
		"two names":           {64, run("a", "b", "--", "true"), "exactly one name"},
		"-c with two":         {64, run("-c", "a", "--", "echo", "b"), "one argument"},
		"-n with -w":          {64, run("-n", "-w", "1", "a", "--", "true"), "nonblock"},
		"-w nonsense":         {64, run("-w", "soon", "a", "--", "true"), "seconds"},
		"-w negative":         {64, run("-w", "-1", "a", "--", "true"), "-w"},
		"-w NaN":              {64, run("-w", "NaN", "a", "--", "true"), "-w"},
		"-E too large":        {64, run("-E", "256", "a", "--", "true"), "256"},
		"negative kill-after": {64, run("--kill-after", "-1s", "a", "--", "true"), "kill-after"},
		"long kill-after":     {78, run("--kill-after", "10s", "a", "--", "true"), "--kill-after 10s is too long for a TTL of 15s"},
		"zero max-hold":       {64, run("--max-hold", "0", "a", "--", "true"), "max-hold"},
		"label without key":   {64, run("--label", "x", "a", "--", "true"), "KEY=VALUE"},
		"ttl nonsense":        {64, run("--ttl", "soon", "a", "--", "true"), "ttl"},
		"ttl too short":       {78, run("--ttl", "1ms", "a", "--", "true"), "100ms"},
		"ttl zero":            {78, run("--ttl", "0", "a", "--", "true"), "TTL"},
		"empty name":          {78, run("", "--", "true"), "empty"},
		"name too long":       {78, run(strings.Repeat("n", 513), "--", "true"), "513"},
		"name not UTF-8":      {78, run("\xff", "--", "true"), "UTF-8"},
		"note too long":       {78, run("--note", strings.Repeat("n", 5000), "a", "--", "true"), "note"},
		"later store":         {78, append([]string{"--store", "etcd://h"}, run("a", "--", "true")...), "not in this version"},
		"unknown store":       {78, append([]string{"--store", "ftp://h"}, run("a", "--", "true")...), "unknown"},
		"no store":            {78, append([]string{"--store", "here"}, run("a", "--", "true")...), "no scheme"},
		"store is a folder":   {77, append([]string{"--store", "sqlite:" + b.dir}, run("a", "--", "true")...), b.dir},
		"store unreachable":   {69, append([]string{"--store", "redis://127.0.0.1:1"}, run("a", "--", "true")...), "refused"},
		"info without name":   {64, []string{"info"}, "arg"},
		"info bad format":     {64, []string{"info", "-o", "xml", "a"}, "jsonl"},
		"break without token": {64, []string{"break", "a"}, "--token"},
		"break bad token":     {64, []string{"break", "a", "--token", "x"}, "token"},
		"break nobody":        {77, []string{"break", "a", "--token", "12"}, "no grant has token 12"},
		"elect no name":       {64, []string{"elect"}, "holdfast elect [flags] NAME -- COMMAND"},
		"elect no --":         {64, []string{"elect", "a", "true"}, "holdfast elect a -- true"},
		"elect empty name":    {78, []string{"elect", "", "--", "true"}, "empty"},
		"elect not found":     {127, []string{"elect", "a", "--", "no-such-command"}, "no-such-command"},
		"elect -c with two":   {64, []string{"elect", "-c", "a", "--", "echo", "b"}, "one argument"},
		"elect kill-after":    {64, []string{"elect", "--kill-after", "-1s", "a", "--", "true"}, "kill-after"},
		"elect long kill":     {78, []string{"--ttl", "2s", "elect", "--kill-after", "1s", "a", "--", "true"}, "allowed are 666ms, or with --ttl 3s"},
		"elect label":         {64, []string{"elect", "--label", "x", "a", "--", "true"}, "KEY=VALUE"},
		"nobody leads":        {75, []string{"leader", "a"}, "nobody leads a"},
		"leader without name": {64, []string{"leader"}, "arg"},
		"leader bad format":   {64, []string{"leader", "-o", "table", "a"}, "text, json"},
		"leader empty name":   {78, []string{"leader", "--watch", ""}, "empty"},
		"sem alone":           {64, []string{"sem"}, "holdfast sem --help"},
		"sem unknown":         {64, []string{"sem", "show", "a"}, "show"},
		"sem no number":       {64, []string{"sem", "limit", "a", "many"}, "many"},
		"sem zero":            {64, []string{"sem", "limit", "a", "0"}, "positive"},
		"sem not in use":      {77, []string{"sem", "limit", "a", "2"}, "a is not in use"},
		"latch alone":         {64, []string{"latch"}, "holdfast latch --help"},
		"latch unknown":       {64, []string{"latch", "up", "a"}, "up"},
		"latch no number":     {64, []string{"latch", "set", "a", "many"}, "many"},
		"latch negative":      {64, []string{"latch", "set", "a", "--", "-1"}, "not negative"},
		"latch empty id":      {64, []string{"latch", "down", "a", "--id", ""}, "--id is empty"},
		"latch long id":       {78, []string{"latch", "down", "a", "--id", strings.Repeat("n", 513)}, "512"},
		"latch -w nonsense":   {64, []string{"latch", "wait", "a", "-w", "soon"}, "seconds"},
		"latch empty name":    {78, []string{"latch", "wait", ""}, "empty"},
		"down without latch":  {77, []string{"latch", "down", "a"}, "there is no latch a"},
		"wait without latch":  {77, []string{"latch", "wait", "a"}, "there is no latch a"},
		"wait 0 no latch":     {77, []string{"latch", "wait", "-w", "0", "a"}, "there is no latch a"},
		"rm without latch":    {77, []string{"latch", "rm", "a"}, "there is no latch a"},
		"ls two prefixes":     {64, []string{"ls", "a", "b"}, "arg"},
		"version":             {0, []string{"version"}, ""},
		"completion":          {0, []string{"completion", "bash"}, ""},
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

// A command that cannot be run does not wait for the lock first.
func TestNotFoundDoesNotWait(t *testing.T) {
	b := newBench(t)
	b.holder("a")
	b.want(127, "run", "a", "--", "no-such-command")
}

// holder runs a command that holds the lock until the test ends.
func (b *bench) holder(name string, flags ...string) *process {
	b.Helper()
	p := b.start(append(append([]string{"run"}, flags...), name, "--", "sh", "-c", "echo $$ >$D/holder; exec sleep 1000")...)
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
	b.want(75, "run", "-w", "0.05", "a", "--", "touch", "ran")
	b.want(75, "run", "-w", "50ms", "a", "--", "touch", "ran")
	b.want(3, "run", "-n", "-E", "3", "a", "--", "touch", "ran")
	for _, how := range [][]string{{"-n"}, {"-w", "0.05"}} {
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
