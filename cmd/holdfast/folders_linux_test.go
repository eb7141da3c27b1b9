package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The embedded store refuses a folder of another user, who could exchange the file under a holder.
func TestFolderOfAnotherUser(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	theirs := filepath.Join(b.dir, "state", "holdfast")
	if err := os.MkdirAll(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{theirs, filepath.Dir(theirs)} { // one at a time
		if err := os.Chown(dir, int(whom.Uid), int(whom.Gid)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"run", "a", "--", "true"}, {"ls"}} {
			if _, stderr := b.want(77, args...); !strings.Contains(stderr, "belongs to user "+strconv.Itoa(int(whom.Uid))) {
				t.Errorf("%q: %s", args, stderr)
			}
		}
		if err := os.Chown(dir, os.Geteuid(), os.Getegid()); err != nil {
			t.Fatal(err)
		}
	}
	b.want(0, "run", "a", "--", "true")
}
