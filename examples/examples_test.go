// Package examples tests the programs of its folders: they keep their data whole with the lock, damage it
// without, and print what README.md shows.
package examples

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/server"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

// limit bounds each run. It is long because the machine may be busy.
const limit = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	for _, name := range server.Stores {
		stores[name] = sync.OnceValues(func() (string, error) {
			url, end, err := server.Start(context.Background(), name)
			if err == nil {
				started.Lock()
				defer started.Unlock()
				ends = append(ends, end)
			}
			return url, err
		})
	}
	dir, err := os.MkdirTemp("", "examples-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ends = append(ends, func() { _ = os.RemoveAll(dir) })
	build = sync.OnceValues(func() (string, error) {
		out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir+"/", "./...").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return dir, err
	})
	return m.Run()
}

var (
	build   func() (dir string, err error)                // builds the programs
	stores  = map[string]func() (url string, err error){} // each starts a server for all tests
	started sync.Mutex
)

// command is a block of README.md with a command, and the one after it, with the output.
type command struct {
	program string
	flags   []string
	output  string
}

func (c command) damages() bool { return len(c.flags) > 0 } // there is no other flag in README.md

func commands(t *testing.T) (all []command) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\ngo run \\./(\\w+)([^\n]*)\n```\n\n```text\n(.*?)```\n")
	programs := map[string]int{}
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		c := command{m[1], strings.Fields(m[2]), m[3]}
		all = append(all, c)
		programs[c.program]++
	}
	dirs, err := filepath.Glob("*/main.go")
	if err != nil || len(dirs) != 6 || len(programs) != len(dirs) {
		t.Fatalf("%v: programs %q, in README.md %v", err, dirs, programs)
	}
	return all
}

// try runs the program, and compares its output with that of README.md.
func (c command) try(t *testing.T, more ...string) {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, c.program), append(more, c.flags...)...)
	tmp, err := os.MkdirTemp("", "example") // short, and open to the users of servers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var out []byte
	done := make(chan struct{})
	servers.Tie(cmd, func() { defer close(done); out, err = cmd.CombinedOutput() })
	<-done
	want := 0
	if c.damages() {
		want = 1
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit code %d (%v), want %d", got, err, want)
	}
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(c.output), "…", ".*") + "$"
	if !regexp.MustCompile(pattern).Match(out) {
		t.Errorf("the output is\n%s\nREADME.md has\n%s", out, c.output)
	}
	left, err := os.ReadDir(tmp)
	left = slices.DeleteFunc(left, func(e os.DirEntry) bool { // of the SQL stores; see docs/mysql.md
		return e.Name() == fmt.Sprintf("holdfast-%d-sql", os.Geteuid())
	})
	if err != nil || len(left) > 0 {
		t.Errorf("files are left over: %v %v", left, err)
	}
}

func (c command) name() string { return strings.Join(append([]string{c.program}, c.flags...), " ") }

// The programs print what README.md shows, with the lock and without it.
func TestReadme(t *testing.T) {
	needPrograms(t)
	damages := map[string]bool{}
	for _, c := range commands(t) {
		damages[c.program] = damages[c.program] || c.damages()
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			c.try(t)
		})
	}
	for program, does := range damages {
		if !does {
			t.Errorf("README.md does not show what happens without the lock to %s", program)
		}
	}
}

// The same on each kind of server. Without the lock only a server that has the data, too, is used.
func TestStores(t *testing.T) {
	needPrograms(t)
	for _, store := range server.Stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			url, err := stores[store]()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range commands(t) {
				t.Run(c.name(), func(t *testing.T) { c.try(t, "-store", url) })
			}
		})
	}
}

// A program starts the server of a store itself, and ends it.
func TestOwnServer(t *testing.T) {
	needPrograms(t)
	t.Parallel()
	for _, c := range commands(t) {
		if c.name() == "points" {
			c.try(t, "-store", "redis")
			return
		}
	}
	t.Fatal("README.md does not show the program points")
}

func needPrograms(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test builds and runs programs, which need servers")
	}
}
