//go:build unix

package verify

import (
	"os"
	"os/exec"
	"syscall"
)

// canStop: processes can be stopped and resumed.
const canStop = true

func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// ownGroup keeps a terminal's signals away from cmd.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// shell runs a line of the user's, with one more word.
func shell(line, word string) *exec.Cmd {
	return exec.Command("sh", "-c", line+` "$@"`, "hook", word)
}
