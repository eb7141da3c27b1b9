//go:build !linux

package testenv

import "testing"

// Disk is a small file system that can be full.
type Disk struct{ Path string }

// SmallDisk skips the test: how a file system is mounted is Linux's.
func SmallDisk(t testing.TB, _ int) *Disk {
	t.Helper()
	t.Skip("a small disk is mounted on Linux only")
	return nil
}

// OwnDisk is SmallDisk for a server's data.
func (s *server) OwnDisk(size int) *Disk {
	s.t.Helper()
	return SmallDisk(s.t, size)
}

// Fill takes all that is left of the disk.
func (*Disk) Fill() {}

// Relieve gives back what Fill has taken.
func (*Disk) Relieve() {}
