package main_test

import (
	"errors"
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

// verify keeps no histories in a folder in which another user could make links to files.
func TestHistoriesInAFolderOfAnotherUser(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	for what, mode := range map[string]os.FileMode{"belongs to user " + strconv.Itoa(int(whom.Uid)): 0o755,
		"every user may write": 0o777} {
		dir := filepath.Join(b.dir, mode.String())
		if err := errors.Join(os.Mkdir(dir, mode), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		if mode == 0o755 {
			if err := os.Chown(dir, int(whom.Uid), int(whom.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		link := dir + "-link"
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{dir, link} {
			if _, stderr := b.want(78, "verify", "--duration", "6s", "--keep", at); !strings.Contains(stderr, what) {
				t.Error(stderr)
			}
		}
		if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
			t.Errorf("in the folder: %v, %v", made, err)
		}
	}
}

// The first use by sudo with the caller's HOME creates nothing there: the caller could not enter it.
// Root may use the home of somebody else, as in a container.
func TestHomeOfTheCallerOfSudo(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	home := filepath.Join(b.dir, "home")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Chown(home, int(whom.Uid), int(whom.Gid))); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "HOME="+home, "XDG_STATE_HOME=", "SUDO_UID="+strconv.Itoa(int(whom.Uid)))
	for _, args := range [][]string{{"run", "a", "--", "true"}, {"ls"}} {
		if _, stderr := b.want(77, args...); !strings.Contains(stderr, home+" belongs to the user who called sudo") {
			t.Errorf("%q: %s", args, stderr)
		}
	}
	if made, err := os.ReadDir(home); err != nil || len(made) > 0 {
		t.Errorf("in the home: %v, %v", made, err)
	}
	b.env = append(b.env, "SUDO_UID=")
	b.want(0, "run", "a", "--", "true")
}
