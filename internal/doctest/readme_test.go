// Package doctest runs the commands and code of the documents.
package doctest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

const root = "../.."

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks returns the fenced blocks of one language in a document.
func blocks(t *testing.T, doc, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, doc))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no %s blocks", doc, language)
	}
	return found
}

const testCommand = "./scripts/test.sh\n"

// The shell blocks of the README work as written, one after another in one shell, in a home folder
// of their own.
func TestShell(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test builds and runs the command line program")
	}
	// A copy of what the commands need: the README runs them in the checkout, and they leave a
	// program there.
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
	var script strings.Builder
	for _, b := range blocks(t, "README.md", "sh") {
		if b != testCommand {
			script.WriteString(b)
		}
	}
	cmd := exec.Command("sh", "-eu", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_STATE_HOME=", "HOLDFAST_URL=", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false",
		"GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOPATH="+goEnv(t, "GOPATH"))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"I hold the lock\n", "deploy/prod", "release 12", "exit code 75: busy", "my turn, with token ", "the report\n", "report/daily",
		"reading together\n", "one of two permits\n", "both locks\n", " at 10.0.0.7:8080 leads since ", "all built\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
	for _, not := range []string{"not reached\n", "not again\n"} {
		if strings.Contains(string(out), not) {
			t.Errorf("the output contains %q", not)
		}
	}
}

// The Go blocks of the README compile and run.
func TestGo(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts a redis-server")
	}
	addr := testenv.Existing(t)
	want := []string{"charged, with fencing token 1\ntrue\n", "taking stock\n"}
	got := blocks(t, "README.md", "go")
	if len(got) != len(want) {
		t.Fatalf("%d Go blocks; the test knows %d", len(got), len(want))
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		dir := t.TempDir()
		src, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
		if err := os.WriteFile(src, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
		pkg := fmt.Sprint("internal/doctest/block", i)
		text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(abs, pkg, "main.go"): src}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(overlay, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "run", "-overlay", overlay, "./"+pkg)
		cmd.Dir = abs
		cmd.Env = append(os.Environ(), "REDIS_ADDR="+addr)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want[i] {
			t.Errorf("block %d: %v\n%s\nwant:\n%s", i, err, out, want[i])
		}
	}
}

// CI runs the test command of the README, and nothing else.
func TestCommand(t *testing.T) {
	found := false
	for _, b := range blocks(t, "README.md", "sh") {
		found = found || b == testCommand
	}
	ci, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	if err != nil {
		t.Fatal(err)
	}
	if !found || !strings.HasSuffix(string(ci), "\nexec "+testCommand) {
		t.Errorf("README.md and .ci/run do not agree on %q:\n%s", testCommand, ci)
	}
}

// Links of the documents lead to existing files.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	docs, _ := filepath.Glob(filepath.Join(root, "docs/*.md"))
	adrs, _ := filepath.Glob(filepath.Join(root, "docs/adr/*.md"))
	tops, _ := filepath.Glob(filepath.Join(root, "*.md"))
	for _, doc := range append(append(docs, adrs...), tops...) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", doc, m[1], err)
			}
		}
	}
}

// The tests that docs/testing.md names exist.
func TestNamesOfTests(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)[`/]").FindAllStringSubmatch(string(text), -1)
	if len(named) < 50 {
		t.Fatalf("only %d names found: the search is broken", len(named))
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("docs/testing.md names %s, which does not exist", m[1])
		}
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
