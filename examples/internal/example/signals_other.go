//go:build !unix

package example

import "syscall"

// These systems have no such signals: Process.Signal refuses them.
const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)
