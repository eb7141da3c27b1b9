//go:build unix

package storeurl

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// nonblocking opens a pipe without a wait for its writer.
const nonblocking = syscall.O_NONBLOCK

func private(fi os.FileInfo) error {
	if err := trusted(fi); err != nil {
		return err
	}
	if fi.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("every user may read it (mode %#o); allowed are modes such as 0600, 0400 and 0440", fi.Mode().Perm())
	}
	return nil
}

func trusted(fi os.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("its owner is unknown")
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d; allowed are this user, %d, and root", st.Uid, os.Geteuid())
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users may write it (mode %#o)", fi.Mode().Perm())
	}
	return nil
}
