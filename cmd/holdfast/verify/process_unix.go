//go:build unix

package verify

import (
	"os"
	"os/exec"
	"syscall"
)

// canStop: processes can be stopped and resumed.
const canStop = true

// stop stops p and its group: a worker of the user's may be a shell with children.
func stop(p *os.Process) error { return signalGroup(p, syscall.SIGSTOP) }

func resume(p *os.Process) error { return signalGroup(p, syscall.SIGCONT) }

// killGroup kills p and its group.
func killGroup(p *os.Process) { _ = signalGroup(p, syscall.SIGKILL) }

// signalGroup signals the group that ownGroup has made, unless p is known to have ended.
func signalGroup(p *os.Process, s syscall.Signal) error {
	if err := p.Signal(syscall.Signal(0)); err != nil {
		return err
	}
	return syscall.Kill(-p.Pid, s)
}

// ownGroup keeps a terminal's signals away from cmd.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// shell runs a line of the user's, with one more word.
func shell(line, word string) *exec.Cmd {
	return exec.Command("sh", "-c", line+` "$@"`, "hook", word)
}

// shellCommand runs a line of the user's.
func shellCommand(line string) *exec.Cmd { return exec.Command("sh", "-c", line) }
