package doctest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// block is a fenced block of a page.
type block struct{ language, text string }

// pages are the pages whose shell and Go blocks run. A text block after one has its output; an
// ellipsis in it stands for any text.
func pages(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob(filepath.Join(root, "docs/tasks/*.md"))
	if err != nil || len(tasks) < 5 {
		t.Fatalf("%v: %q", err, tasks)
	}
	all := []string{"README.md", "docs/tour.md", "docs/go.md", "docs/http-api.md"}
	if runtime.GOOS == "linux" {
		all = append(all, "docs/move/flock.md") // runs flock
	}
	for _, p := range tasks {
		all = append(all, "docs/tasks/"+filepath.Base(p))
	}
	return all
}

// read returns the fenced blocks of a page.
func read(t *testing.T, page string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

// compare reports lines of want that are not in got, in this order. Others may be in between, such
// as messages about a wait on a slow machine.
func compare(t *testing.T, got, want string) {
	t.Helper()
	rest := strings.Split(got, "\n")
	for _, line := range strings.Split(strings.TrimSuffix(want, "\n"), "\n") {
		if line == "…" {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
		for len(rest) > 0 && !pattern.MatchString(rest[0]) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			t.Errorf("%q is not in the output, or not in this order:\n%s", line, got)
			return
		}
		rest = rest[1:]
	}
}

// The shell blocks of each page work as written, one after another in one shell, with a home folder
// of their own. Those of the README come first: they build the program.
func TestShell(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test builds and runs the command line program")
	}
	dir := checkout(t)
	env := append(os.Environ(), "XDG_STATE_HOME=", "HOLDFAST_URL=", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false",
		"PATH="+dir+"/bin:"+os.Getenv("PATH"),
		"GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOPATH="+goEnv(t, "GOPATH"))
	for _, page := range pages(t) {
		const mark = "--- the next block ---"
		script, want := "", []string{}
		for _, b := range read(t, page) {
			switch {
			case b.language == "sh" && b.text != testCommand:
				script += b.text + "echo '" + mark + "'\n"
				want = append(want, "")
			case b.language == "text" && len(want) > 0:
				want[len(want)-1] = b.text
			}
		}
		if script == "" {
			continue
		}
		t.Run(page, func(t *testing.T) {
			cmd := exec.Command("sh", "-eu", "-c", script)
			cmd.Dir = dir
			cmd.Env = append(env, "HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(string(out), mark+"\n")
			if len(parts) != len(want)+1 {
				t.Fatalf("%d parts of %d blocks", len(parts), len(want))
			}
			if page == "README.md" {
				parts, want = []string{string(out)}, []string{readmeShell}
			}
			for i, text := range want {
				compare(t, parts[i], text)
			}
			for _, not := range []string{"not reached\n", "not again\n"} {
				if strings.Contains(string(out), not) {
					t.Errorf("the output contains %q", not)
				}
			}
		})
	}
}

// checkout returns a copy of what the commands of the pages need: they leave a program there.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "bin" || e.Name() == "cmd" {
			continue
		}
		if err := os.Symlink(filepath.Join(abs, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "cmd"), os.DirFS(filepath.Join(abs, "cmd"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The README has no room for the output of its blocks.
const readmeShell = `I hold the lock
one deploy at a time
or not at all
once a day, on one of many machines
four at a time
one leader; if it fails, another machine takes over
`

// around makes a program of the README's lines.
const around = `package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

func charge(ctx context.Context, token uint64) error {
	fmt.Println(ctx.Err(), token > 0)
	return nil
}

func main() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR"), ContextTimeoutEnabled: true})
	defer rdb.Close()
	%s
	if err != nil {
		log.Fatal(err)
	}
	_ = c.Close(ctx)
}
`

// declare declares the quorum new that the pages use. An operator does that once.
const declare = `package main

import (
	"context"
	"log"
	"os"

	"github.com/holdfast-lock/holdfast/open"
)

func main() {
	if _, err := open.Init(context.Background(), os.Getenv(open.Variable)); err != nil {
		log.Fatal(err)
	}
}
`

// The Go blocks of each page compile and run.
func TestGo(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts a redis-server")
	}
	addr := testenv.Existing(t)
	type program struct{ page, want string }
	var programs []program
	dir, sources, args := t.TempDir(), map[string]string{}, []string(nil)
	for _, page := range pages(t) {
		open := false // a text block here is the output of the last program
		for _, b := range read(t, page) {
			switch b.language {
			case "go":
				if page == "README.md" {
					b.text = fmt.Sprintf(around, b.text)
				}
				name := fmt.Sprint("block", len(programs))
				sources["internal/doctest/"+name+"/main.go"] = b.text
				args = append(args, "./internal/doctest/"+name)
				programs, open = append(programs, program{page: page}), true
			case "text":
				if open {
					programs[len(programs)-1].want = b.text
				}
			default:
				open = false
			}
		}
	}
	programs[0].want = "<nil> true\n" // of the README
	sources["internal/doctest/declare/main.go"], args = declare, append(args, "./internal/doctest/declare")
	url := "redis+quorum://" + testenv.Redis(t).Addr + "," + testenv.Redis(t).Addr + "," + testenv.Redis(t).Addr
	build(t, sources, append([]string{"build", "-o", dir + "/"}, args...)...)
	env := append(os.Environ(), "REDIS_ADDR="+addr, "HOLDFAST_URL="+url)
	cmd := exec.Command(filepath.Join(dir, "declare"))
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, p := range programs {
		if p.want == "" {
			t.Errorf("%s: the output of a program is missing", p.page)
		}
		cmd := exec.Command(filepath.Join(dir, fmt.Sprint("block", i)))
		cmd.Dir = t.TempDir()
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != p.want {
			t.Errorf("%s: %v\n%s\nwant:\n%s", p.page, err, out, p.want)
		}
	}
}

// build runs a command of go at the root, with files that only this command sees.
func build(t *testing.T, sources map[string]string, command ...string) {
	t.Helper()
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	for path, text := range sources {
		replace[filepath.Join(abs, path)] = write(fmt.Sprint(len(replace), ".go"), text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"-ldflags=-s -w", "-overlay", write("overlay.json", string(overlay))}
	cmd := exec.Command("go", slices.Insert(command, 1, flags...)...)
	cmd.Dir = abs
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
