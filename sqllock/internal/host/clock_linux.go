package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Now returns the time since boot in nanoseconds, suspend included. Nobody can set it.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // exists since Linux 2.6.39
	}
	return ts.Nano()
}

// BootID identifies this boot of the machine. Readings of Now are comparable only within one boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
