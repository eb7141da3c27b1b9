//go:build !unix

package verify

import (
	"errors"
	"os"
	"os/exec"
)

// canStop: processes can be stopped and go on.
const canStop = false

func stop(*os.Process) error { return errors.ErrUnsupported }

func goOn(*os.Process) error { return errors.ErrUnsupported }

// bound runs f, which starts cmd and waits for it. A worker ends when its standard input does.
func bound(_ *exec.Cmd, f func()) { go f() }

// frozen cannot be told here.
func frozen(int) (is, known bool) { return false, false }

func apart(*exec.Cmd) {}

// shell runs a line of the user's, with one more word.
func shell(line, word string) *exec.Cmd { return exec.Command("cmd", "/C", line+" "+word) }
