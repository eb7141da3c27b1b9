//go:build !unix

package verify

import (
	"errors"
	"os"
	"os/exec"
)

// canStop: processes can be stopped and resumed.
const canStop = false

func stop(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

// tiedToParent runs f, which starts cmd and waits for it. A worker ends at the end of its standard
// input.
func tiedToParent(_ *exec.Cmd, f func()) { go f() }

// frozen cannot tell on these systems.
func frozen(int) (is, known bool) { return false, false }

func ownGroup(*exec.Cmd) {}

// shell runs a line of the user's, with one more word.
func shell(line, word string) *exec.Cmd { return exec.Command("cmd", "/C", line+" "+word) }
