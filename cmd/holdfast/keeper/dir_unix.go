//go:build unix

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir returns the folder of the sockets of this user, which only this user may enter: below
// $XDG_RUNTIME_DIR or /run/user/UID if that is such a folder, else in the folder of temporary
// files. It creates the folder, and returns an error if another user owns what is there, or may
// enter it.
func Dir() (string, error) {
	uid := os.Geteuid()
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/run/user/%d", uid)} {
		if filepath.IsAbs(base) && own(base) == nil {
			dir := filepath.Join(base, "holdfast")
			return dir, create(dir)
		}
	}
	base := os.TempDir()
	if !filepath.IsAbs(base) {
		return "", errors.New("TMPDIR is not an absolute path")
	}
	dir := filepath.Join(base, fmt.Sprintf("holdfast-hold-%d", uid))
	return dir, create(dir)
}

// create creates a folder of this user unless it exists.
func create(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	if err := own(dir); err != nil {
		return fmt.Errorf("%w; XDG_RUNTIME_DIR names another folder", err)
	}
	return nil
}

// own returns an error unless dir is a folder that only this user may enter.
func own(dir string) error {
	fi, err := os.Lstat(dir) // a link could lead anywhere, later
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to %d", dir, st.Uid, os.Geteuid())
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("other users may enter %s (mode %#o); it must have mode 0700", dir, fi.Mode().Perm())
	}
	return nil
}

// Detached returns the attributes of a process that neither a terminal nor a signal to the group of
// its parent reaches.
func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// SessionLeader returns the first process of this terminal's session, which is its shell; ok is
// false without a terminal.
func SessionLeader() (pid int, ok bool) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	_ = tty.Close()
	leader, err := unix.Getsid(0)
	return leader, err == nil && leader > 0
}

// sessionOf returns the first process of this process's session, 0 if it is unknown.
func sessionOf() int {
	leader, _ := unix.Getsid(0)
	return leader
}
