// Package host has what the processes of one machine share besides a file: a common clock, the boot
// ID, proof that a process is alive, sockets that wake processes, and the kind of a folder's file
// system.
//
// Linux, macOS and the BSDs have all of it, except that the BSDs have only the wall clock and no
// boot ID. Elsewhere (Windows) there is only the wall clock: no process is considered dead before
// its lease has expired, and waiters poll; see [Push].
package host

import (
	"errors"
	"fmt"
	"os"
)

// ErrNobody means that no process listens at the address any more. [Notifier.Notify] returns it.
var ErrNobody = errors.New("no process listens")

// ErrForeign means that a folder belongs to another user. [PrivateDir] returns it. It wraps
// os.ErrPermission.
var ErrForeign = fmt.Errorf("a folder of another user: %w", os.ErrPermission)

// Life is the result of [Probe].
type Life int

// The results. Unknown is the safe answer: the file is missing, is another one, or cannot be read.
const (
	Unknown Life = iota
	Alive
	Dead
)
