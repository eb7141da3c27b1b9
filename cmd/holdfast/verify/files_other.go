//go:build !linux

package verify

// openFiles is -1: there is no cheap way to know how many file descriptors are open.
func openFiles() int64 { return -1 }
