//go:build !linux

package keeper

import (
	"os"
	"time"
)

// Process is a process by its number. If another process gets the number within a second, that one
// counts.
type Process struct{ pid int }

// OpenProcess returns a running process.
func OpenProcess(pid int) (*Process, error) { return &Process{pid}, alive(pid) }

// File returns nil: these systems have no descriptors of processes.
func (p *Process) File() *os.File { return nil }

// Inherited returns the process with the number.
func Inherited(_, pid int) *Process { return &Process{pid} }

// Wait returns when the process has ended.
func (p *Process) Wait() {
	for alive(p.pid) == nil {
		time.Sleep(time.Second)
	}
}
