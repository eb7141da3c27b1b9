//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command that only reads reports a file that does not exist, and creates nothing. A command that
// takes a lock creates it.
func TestReadingCreatesNoFile(t *testing.T) {
	b := newBench(t)
	dir := filepath.Join(b.dir, "new")
	url := "sqlite:" + filepath.Join(dir, "x.db")
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "json"}, {"info", "a"}, {"leader", "a"}, {"leader", "--watch", "a"}} {
		out, stderr := b.want(77, append([]string{"--store", url}, args...)...)
		if out != "" || !strings.Contains(stderr, "there is no file "+filepath.Join(dir, "x.db")) {
			t.Errorf("%q: %q, %q", args, out, stderr)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Fatalf("%q: the folder is there: %v", args, err)
		}
	}
	b.want(0, "--store", url, "run", "a", "--", "true")
	b.want(0, "--store", url, "ls")
	b.want(0, "ls") // the file of the user: it has no locks yet
}
