//go:build unix

package open

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// ownFolder refuses a folder that another user could exchange: the folder must belong to this user,
// and its parent to this user or root.
func ownFolder(dir string) error {
	if err := ownedBy(dir, os.Geteuid()); err != nil {
		return err
	}
	return ownedBy(filepath.Dir(dir), os.Geteuid(), 0)
}

// mayCreate refuses to create a folder in the home of the user who called sudo, with the HOME of that
// user: what root creates there shuts that user out. Root may create it in other homes, as in a
// container whose home belongs to another user.
func mayCreate(dir string) error {
	caller, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil || caller == 0 || os.Geteuid() != 0 {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		fi, err := os.Stat(at)
		switch {
		case err != nil && at != filepath.Dir(at):
			continue
		case err != nil:
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && at != dir && int(st.Uid) == caller {
			return fmt.Errorf(
				"%s belongs to the user who called sudo, and could not use what root creates there (sudo -H sets HOME)", at)
		}
		return nil
	}
}

// ownedBy returns an error unless one of the users owns the folder.
func ownedBy(dir string, users ...int) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && !slices.Contains(users, int(st.Uid)) {
		return fmt.Errorf("%s belongs to user %d, who could exchange the store; this is user %d", dir, st.Uid, os.Geteuid())
	}
	return nil
}

// foreignFile says whom a file belongs to that this user may not use, or else its nearest folder that
// this user can see; "": it belongs to this user.
func foreignFile(path string) string {
	for at := path; ; at = filepath.Dir(at) {
		fi, err := os.Stat(at)
		switch {
		case err != nil && at != filepath.Dir(at):
			continue
		case err != nil:
			return ""
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) == os.Geteuid() {
			return ""
		}
		return fmt.Sprintf("%s belongs to %s, and this is %s", at, userOf(int(st.Uid)), userOf(os.Geteuid()))
	}
}

// userOf returns the name of a user, or the number.
func userOf(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return u.Username
	}
	return "user " + strconv.Itoa(id)
}
