//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// width returns how many columns the terminal f has, 0 if f is no terminal.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 { // a terminal that does not know
		return 80
	}
	return int(size.Col)
}
