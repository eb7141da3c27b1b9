//go:build unix

package verify

import (
	"fmt"
	"os"
	"syscall"
)

// private refuses a folder in which another user can make links: the histories would be written to
// where they lead.
func private(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d; this is user %d", dir, st.Uid, os.Geteuid())
	}
	if fi.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("every user may write to %s", dir)
	}
	return nil
}
