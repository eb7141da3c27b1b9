//go:build !linux && !darwin

package host

import "time"

// Now returns the wall clock in nanoseconds. This system has no clock that all processes share,
// that counts sleep, and that identifies each boot. Setting the wall clock ends leases early or
// late.
func Now() int64 { return time.Now().UnixNano() }

// BootID returns a constant: the wall clock continues over a reboot, so leases of an earlier boot
// expire.
func BootID() (string, error) { return "wall", nil }
