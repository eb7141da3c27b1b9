package keeper

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Process names a process, also after its number belongs to another one.
type Process struct {
	file *os.File
	pid  int
}

// OpenProcess returns a running process.
func OpenProcess(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch err {
	case nil:
		return &Process{os.NewFile(uintptr(fd), "process"), pid}, nil
	case unix.ENOSYS, unix.EPERM: // an old system, or a sandbox
		if err := alive(pid); err != nil {
			return nil, err
		}
		return &Process{nil, pid}, nil
	}
	return nil, err
}

// File returns the descriptor for a child, nil if the system has none.
func (p *Process) File() *os.File { return p.file }

// Inherited returns the process whose descriptor this process has inherited as fd, or else the one
// with the number.
func Inherited(fd, pid int) *Process {
	if fd <= 0 {
		return &Process{nil, pid}
	}
	unix.CloseOnExec(fd)
	return &Process{os.NewFile(uintptr(fd), "process"), pid}
}

// Wait returns when the process has ended.
func (p *Process) Wait() {
	for p.file == nil && alive(p.pid) == nil {
		time.Sleep(time.Second)
	}
	if p.file == nil {
		return
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.file.Fd()), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}
