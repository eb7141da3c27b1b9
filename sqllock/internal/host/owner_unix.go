//go:build unix

package host

import (
	"fmt"
	"os"
	"syscall"
)

// PrivateDir creates dir with mode 0700 unless it exists, and refuses (os.ErrPermission)
// one that other users could write to or that belongs to somebody else.
func PrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch uid := os.Geteuid(); {
	case !fi.IsDir():
		return fmt.Errorf("%s is not a directory: %w", dir, os.ErrPermission)
	case ok && uid != 0 && int(st.Uid) != uid:
		return fmt.Errorf("%s belongs to user %d, not to %d: %w", dir, st.Uid, uid, os.ErrPermission)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %o; others may write to it: %w", dir, fi.Mode().Perm(), os.ErrPermission)
	}
	return nil
}
