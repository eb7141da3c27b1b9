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

func killGroup(p *os.Process) { _ = p.Kill() }

func ownGroup(*exec.Cmd) {}

// shell runs a line of the user's, with one more word.
func shell(line, word string) *exec.Cmd { return exec.Command("cmd", "/C", line+" "+word) }

// shellCommand runs a line of the user's.
func shellCommand(line string) *exec.Cmd { return exec.Command("cmd", "/C", line) }
