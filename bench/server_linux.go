package main

import (
	"os"
	"syscall"
)

// syncData returns when the data written to f is on the disk; the size of f must be unchanged.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
