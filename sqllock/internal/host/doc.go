// Package host is what the processes of one machine share besides a file: a clock that all
// of them read alike, the number of the boot, a sign that a process lives, a bell to wake
// it, and the kind of file system a folder lies on.
//
// Linux has all of it. macOS and the BSDs have it too, the BSDs with the wall clock and no
// boot id. Elsewhere (Windows) there is the wall clock only: nobody is taken for dead before
// its lease has run out, and waiters poll; see [Push].
package host

import (
	"errors"
	"fmt"
	"os"
)

// ErrNobody is returned by [Ringer.Ring] when no process listens at the address any more.
var ErrNobody = errors.New("nobody listens")

// ErrForeign is returned by [PrivateDir] for a folder of another user. It is an os.ErrPermission.
var ErrForeign = fmt.Errorf("a folder of another user: %w", os.ErrPermission)

// Life is what [Probe] found out.
type Life int

// Unknown is the safe answer: the sign is missing, is another one, or may not be read.
const (
	Unknown Life = iota
	Alive
	Dead
)
