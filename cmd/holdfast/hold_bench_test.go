//go:build unix

package main_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// runtimeDir gives a bench a folder for sockets, with a short path.
func (b *bench) runtimeDir() *bench {
	b.Helper()
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return b.with("XDG_RUNTIME_DIR=" + dir)
}

// variables are what hold prints.
type variables map[string]string

// keep runs hold, and returns what it prints. The keeper ends with this test.
func (b *bench) keep(args ...string) variables {
	b.Helper()
	out, _ := b.want(0, append([]string{"hold", "--while", fmt.Sprint(os.Getpid())}, args...)...)
	return b.held(out)
}

// held returns what hold has printed. The keeper ends with this test.
func (b *bench) held(out string) variables {
	b.Helper()
	v := b.parse(out)
	pid := keeperOf(b, v)
	b.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return v
}

func (b *bench) parse(out string) variables {
	v := variables{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v[key] = value
	}
	return v
}

// env returns the variables for a process.
func (v variables) env() (all []string) {
	for key, value := range v {
		all = append(all, key+"="+value)
	}
	return all
}

// later reports whether token a is larger than b.
func later(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// ends checks that a process ends.
func (b *bench) ends(pid int) {
	b.Helper()
	b.until("the keeper ends", func() bool { return !running(pid) })
}
