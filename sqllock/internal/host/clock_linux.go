package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Now is the time since the boot in nanoseconds, suspend included. No one can set it.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // exists since Linux 2.6.39
	}
	return ts.Nano()
}

// BootID names this boot of the machine: readings of Now compare only within one.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
