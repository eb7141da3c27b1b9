//go:build !unix

package cli

import "os"

// width returns 0: no line is redrawn in place.
func width(*os.File) int { return 0 }

// size returns 0, 0: the list is not shown on such a terminal.
func size(*os.File) (columns, lines int) { return 0, 0 }
