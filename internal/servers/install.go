package servers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Install creates the account's folder data. install is a command line that creates the folder; its
// first word is the installer. With keep the result is kept in the user's cache, and later folders
// are copies of it, which costs a tenth. Without a cache each folder is installed.
func (a Account) Install(ctx context.Context, keep bool, install, words []string) error {
	data, kept := a.Path("data"), ""
	if keep {
		kept, _ = keptAt(install[0], words)
		if _, err := os.Stat(kept); err == nil {
			return a.copyTree(data, kept)
		}
	}
	cmd, err := a.Command(append(install[:len(install):len(install)], words...)...)
	if err == nil {
		_, err = Run(ctx, cmd)
	}
	if err != nil || kept == "" {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(kept), "new")
	if err != nil {
		return nil
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	copied := filepath.Join(fresh, "data")
	if (Account{}).copyTree(copied, data) == nil { // the disk may be full
		_ = os.Rename(copied, kept) // it fails if another process was faster
	}
	return nil
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
func (a Account) copyTree(to, from string) error {
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
