//go:build unix

package open

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ownFolder refuses a folder that another user could exchange: the folder must belong to this user,
// and its parent to this user or root.
func ownFolder(dir string) error {
	for at, allowed := range map[string][]int{dir: {os.Geteuid()}, filepath.Dir(dir): {os.Geteuid(), 0}} {
		fi, err := os.Stat(at)
		if err != nil {
			return err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if ok && int(st.Uid) != allowed[0] && int(st.Uid) != allowed[len(allowed)-1] {
			return fmt.Errorf("%s belongs to user %d, who could exchange the store; this is user %d", at, st.Uid, os.Geteuid())
		}
	}
	return nil
}
