//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// width is how many columns the terminal at f has, 0 if it is none.
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
