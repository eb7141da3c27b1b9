package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tested is the version of the modules under test. Nobody else has it.
const tested = "v0.999.0"

const root = "../.."

// environment is for go commands of somebody who has no copy of the repository: its modules come
// from a proxy made of this tree, and others from the module cache if they are there.
func environment(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	proxy, cache := filepath.Join(dir, "proxy"), filepath.Join(dir, "cache")
	if err := write(root, proxy, tested); err != nil {
		t.Fatal(err)
	}
	env := goEnv(t, "GOMODCACHE", "GOPROXY", "GONOSUMDB")
	return append(os.Environ(), "GOMODCACHE="+cache, "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB="+strings.Trim(env[2]+","+ours+","+ours+"/*", ","),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(env[0])+"/cache/download,"+env[1])
}

func goEnv(t *testing.T, names ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(out), "\n")
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
