//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// width returns how many columns the terminal f has, 0 if f is no terminal.
func width(f *os.File) int {
	columns, _ := size(f)
	return columns
}

// size returns the columns and lines of the terminal f, 0 if f is no terminal.
func size(f *os.File) (columns, lines int) {
	s, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	if s.Col == 0 || s.Row == 0 { // a terminal that does not know
		return 80, 24
	}
	return int(s.Col), int(s.Row)
}
