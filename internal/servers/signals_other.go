//go:build !unix

package servers

import "syscall"

// These systems have no such signals: Process.Signal refuses them.
const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)
