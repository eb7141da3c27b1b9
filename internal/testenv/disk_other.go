//go:build !linux

package testenv

import "testing"

// Disk is a small file system, which a test can fill.
type Disk struct{ Path string }

// SmallDisk skips the test: the method is Linux's.
func SmallDisk(t testing.TB, _ int) *Disk {
	t.Helper()
	t.Skip("small disks exist only on Linux")
	return nil
}

// OwnDisk is SmallDisk for a server's data.
func (s *server) OwnDisk(size int) *Disk {
	s.t.Helper()
	return SmallDisk(s.t, size)
}

// Fill takes all free space of the disk.
func (*Disk) Fill() {}

// Relieve frees the space that Fill has taken.
func (*Disk) Relieve() {}
