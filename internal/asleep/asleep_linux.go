// Package asleep tells how long the machine has slept. Go's monotonic clock stops in suspend;
// the clocks of stores go on, so whoever reckons how long a store keeps something adds this.
package asleep

import (
	"syscall"
	"time"
	"unsafe"
)

// Total is how long the machine has slept since it was started: CLOCK_BOOTTIME minus
// CLOCK_MONOTONIC.
func Total() time.Duration {
	const monotonic, boottime = 1, 7
	least := time.Duration(0)
	for range 3 {
		before := clockGettime(monotonic)
		boot := clockGettime(boottime)
		after := clockGettime(monotonic)
		// The true value lies between boot-after and boot-before; a thread that was
		// descheduled in between shows as a wide interval and reads again.
		least = max(least, boot-after)
		if after-before < 20*time.Microsecond {
			break
		}
	}
	return least
}

func clockGettime(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
