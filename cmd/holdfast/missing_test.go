//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command that only reads, changes or ends what is there reports a file that does not exist, and
// creates nothing. A command that takes a lock or makes a latch creates it.
func TestOnlyNewLocksCreateAFile(t *testing.T) {
	b := newBench(t)
	dir := filepath.Join(b.dir, "new")
	url := "sqlite:" + filepath.Join(dir, "x.db")
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "json"}, {"info", "a"}, {"leader", "a"},
		{"leader", "--watch", "a"},
		{"break", "a", "--token", "1"}, {"sem", "limit", "a", "--clear"}, {"latch", "down", "a"}, {"latch", "wait", "a"},
		{"latch", "wait", "-w", "0", "a"}, {"latch", "rm", "a"},
		{"doctor"}, {"doctor", "--no-try"}} {
		out, stderr := b.want(77, append([]string{"--store", url}, args...)...)
		if out != "" || !strings.Contains(stderr, "there is no file "+filepath.Join(dir, "x.db")) {
			t.Errorf("%q: %q, %q", args, out, stderr)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Fatalf("%q: the folder is there: %v", args, err)
		}
	}
	if r := b.doctor(77, "--store", url); len(r.Findings) != 0 || !strings.Contains(r.Error, "there is no file") {
		t.Errorf("doctor: %+v", r)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("doctor: the folder is there: %v", err)
	}
	// The folder is not made either: its path may have a typing error.
	if _, stderr := b.want(78, "--store", url, "run", "a", "--", "true"); !strings.Contains(stderr,
		"there is no folder "+dir+": correct the path, or make the folder") {
		t.Errorf("%q", stderr)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.want(0, "--store", "sqlite:"+filepath.Join(dir, "latches.db"), "latch", "set", "l", "1")
	b.want(0, "--store", "sqlite:"+filepath.Join(dir, "limits.db"), "sem", "limit", "s", "1")
	made := "holdfast: made a new store: sqlite:" + filepath.Join(dir, "x.db") + "\n"
	for _, want := range []string{made, ""} {
		if _, stderr := b.want(0, "--store", url, "run", "a", "--", "true"); stderr != want {
			t.Errorf("%q, want %q", stderr, want)
		}
	}
	b.want(0, "--store", url, "ls")
	b.want(0, "ls") // the file of the user: it has no locks yet
}
