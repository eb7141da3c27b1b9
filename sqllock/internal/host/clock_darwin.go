package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Now returns the time since boot in nanoseconds, sleep included. Nobody can set it.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC_RAW): " + err.Error()) // exists since macOS 10.12
	}
	return ts.Nano()
}

// BootID identifies this boot of the machine. Readings of Now are comparable only within one boot.
func BootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return id, nil
}
