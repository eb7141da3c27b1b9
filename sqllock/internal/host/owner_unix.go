//go:build unix

package host

import (
	"cmp"
	"fmt"
	"os"
	"syscall"
)

// PrivateDir creates dir with mode 0700 unless it exists. It returns os.ErrPermission if other
// users may write to it, and ErrForeign if another user owns what is there: the owner could replace
// its files, even while root works there.
func PrivateDir(dir string) error { return private(dir, os.MkdirAll(dir, 0o700)) }

// IsPrivate is PrivateDir for a folder that exists. It creates none.
func IsPrivate(dir string) error { return private(dir, nil) }

func private(dir string, made error) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return cmp.Or(made, err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch uid := os.Geteuid(); {
	case ok && int(st.Uid) != uid: // also a file, or a link
		return fmt.Errorf("%s belongs to user %d, not to %d: %w", dir, st.Uid, uid, ErrForeign)
	case made != nil:
		return made
	case !fi.IsDir():
		return fmt.Errorf("%s is not a directory: %w", dir, os.ErrPermission)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %o; others may write to it: %w", dir, fi.Mode().Perm(), os.ErrPermission)
	}
	return nil
}

// OwnDir returns a folder that lasts no longer than the boot: /run/user/UID if the system has made
// one for this user, else the folder of temporary files.
func OwnDir() string {
	dir := fmt.Sprintf("/run/user/%d", os.Geteuid())
	fi, err := os.Lstat(dir)
	if err == nil && fi.IsDir() && fi.Mode().Perm() == 0o700 {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			return dir
		}
	}
	return os.TempDir()
}
