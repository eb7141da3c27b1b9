//go:build !linux

package verify

// openFiles returns -1: there is no cheap way to count the open file descriptors.
func openFiles() int64 { return -1 }
