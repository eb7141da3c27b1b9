package testenv

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// installed creates the account's folder data. install is a command line that creates the folder;
// its first word is the installer. The result is kept in the user's cache, and later folders are
// copies of it, which costs a tenth. Without a cache each folder is installed.
func (a account) installed(t testing.TB, install, words []string) {
	t.Helper()
	data := a.Path("data")
	kept, err := keptAt(install[0], words)
	if err == nil {
		if _, err := os.Stat(kept); err == nil {
			must(t, a.copyTree(data, kept))
			return
		}
	}
	a.finish(t, append(install[:len(install):len(install)], words...)...)
	if err != nil {
		return
	}
	fresh, err := os.MkdirTemp(filepath.Dir(kept), "new")
	if err != nil {
		return
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	copied := filepath.Join(fresh, "data")
	if err := (account{}).copyTree(copied, data); err != nil {
		t.Logf("%s is not kept: %v", data, err) // the disk may be full
		return
	}
	_ = os.Rename(copied, kept) // it fails if another process was faster
}

// keptAt returns where the cache keeps the result of an installer with these words.
func keptAt(installer string, words []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	info, err := os.Stat(installer)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "holdfast-testenv")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Append(nil, installer, info.Size(), info.ModTime().UnixNano(), words))
	return filepath.Join(dir, fmt.Sprintf("%s-%x", filepath.Base(installer), sum[:8])), nil
}

// copyTree copies a folder, and makes the account's user its owner. Under the race detector a loop
// over the files would take four times as long as cp.
func (a account) copyTree(to, from string) error {
	if out, err := exec.Command("cp", "-R", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return a.Own(path)
	})
}
