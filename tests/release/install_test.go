package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/tests/internal/modproxy"
)

const (
	ours   = modproxy.Ours
	root   = "../.."
	tested = "v0.999.0-test" // nobody else has this version
)

// stranger is the environment of somebody who has no copy of the repository, for all tests: they
// share what is downloaded.
var stranger []string

func TestMain(m *testing.M) { os.Exit(main1(m)) }

func main1(m *testing.M) int {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	proxy := filepath.Join(dir, "proxy")
	if err = modproxy.Write(root, proxy, tested); err == nil {
		stranger, err = modproxy.Environ(proxy, filepath.Join(dir, "cache"))
	}
	if err != nil {
		panic(err)
	}
	// The module cache has what go.sum has vouched for.
	stranger = append(stranger, "GOSUMDB=off")
	return m.Run()
}

// run runs a program in dir, and returns what it printed.
func run(t *testing.T, env []string, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = append(out, exit.Stderr...)
		}
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// installed is the program as go install makes it.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	env := append(slices.Clip(stranger), "CGO_ENABLED=0", "GOBIN="+dir)
	run(t, env, dir, "go", "install", "-trimpath", ours+"/cmd/holdfast@"+tested)
	return filepath.Join(dir, "holdfast")
}

// checkProgram checks that a program knows its version, and works.
func checkProgram(t *testing.T, program string) {
	t.Helper()
	dir := t.TempDir()
	text := run(t, os.Environ(), dir, program, "version")
	if want := "holdfast " + tested + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH +
		"\nbuilt with "; !strings.HasPrefix(text, want) ||
		!strings.Contains(text, " -trimpath=true CGO_ENABLED=0") {
		t.Errorf("the version is %q; want %q", text, want)
	}
	if got := run(t, os.Environ(), dir, program, "--store", "sqlite:"+filepath.Join(dir, "locks.db"), "run", "hello", "--",
		"echo", "held"); got != "held\n" {
		t.Errorf("the command printed %q", got)
	}
}
