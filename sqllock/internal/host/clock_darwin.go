package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Now is the time since the boot in nanoseconds, sleep included. No one can set it.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC_RAW): " + err.Error()) // exists since macOS 10.12
	}
	return ts.Nano()
}

// BootID names this boot of the machine: readings of Now compare only within one.
func BootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return id, nil
}
