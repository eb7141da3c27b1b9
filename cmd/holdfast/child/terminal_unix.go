//go:build unix

package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process, wherever its standard input and
// output go. A nil terminal is none.
type terminal struct {
	fd  int
	own int // the group of this process
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd, unix.Getpgrp()}
}

func (t *terminal) close() {
	if t != nil {
		unix.Close(t.fd)
	}
}

// foreground is the group that has the terminal, 0 if that cannot be told.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// lend gives the terminal to group if it is ours to give, and reports whether group has it.
func (t *terminal) lend(group int) bool {
	if t == nil {
		return false
	}
	switch t.foreground() {
	case group:
		return true
	case t.own:
		return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
	}
	return false
}

// reclaim takes the terminal back from group, or from whom group had given it before
// it ended, unless somebody else has been given it. SIGTTOU must be ignored.
func (t *terminal) reclaim(group int) {
	if t == nil {
		return
	}
	has := t.foreground()
	if has == group || has > 1 && errors.Is(unix.Kill(-has, 0), unix.ESRCH) {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) // it may have hung up
	}
}

// interrupted tells the group of this process that the command was ended by a key of the
// terminal, if it was. The key reached only the group that had the terminal, but a script
// that runs the command expects to be interrupted with it.
func (t *terminal) interrupted(group int, s syscall.Signal) bool {
	if t == nil || t.foreground() != group {
		return false
	}
	t.reclaim(group)
	return unix.Kill(0, s) == nil
}
