//go:build unix

package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process, wherever its standard input and output go;
// nil if there is none.
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

// foreground returns the group that has the terminal, 0 if it is unknown.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// lend gives the terminal to group if our group has it, and reports whether group has it now.
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

// reclaim takes the terminal back from group, or from a group that has ended. It leaves the
// terminal to any other group. SIGTTOU must be ignored.
func (t *terminal) reclaim(group int) {
	if t == nil {
		return
	}
	has := t.foreground()
	if has == group || has > 1 && errors.Is(unix.Kill(-has, 0), unix.ESRCH) {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) // it may have hung up
	}
}

// passInterrupt sends s to the group of this process if a key of the terminal ended the command.
// The key reached only the group that had the terminal, but a script that runs the command expects
// the interrupt too.
func (t *terminal) passInterrupt(group int, s syscall.Signal) bool {
	if t == nil || t.foreground() != group {
		return false
	}
	t.reclaim(group)
	return unix.Kill(0, s) == nil
}
