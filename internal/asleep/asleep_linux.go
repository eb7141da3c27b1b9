// Package asleep measures how long the machine has slept. Go's monotonic clock stops in suspend,
// but the clocks of stores do not. Code that computes how long a store keeps a lease has to add
// this.
package asleep

import (
	"syscall"
	"time"
	"unsafe"
)

// Total returns how long the machine has slept since it was started: CLOCK_BOOTTIME minus
// CLOCK_MONOTONIC.
func Total() time.Duration {
	const monotonic, boottime = 1, 7
	least := time.Duration(0)
	for range 3 {
		before := clockGettime(monotonic)
		boot := clockGettime(boottime)
		after := clockGettime(monotonic)
		// The true value is between boot-after and boot-before; if the thread was descheduled in
		// between, the interval is wide, and it reads again.
		least = max(least, boot-after)
		if after-before < 20*time.Microsecond {
			break
		}
	}
	return least
}

// Now returns the reading of a clock that goes on while the machine sleeps, CLOCK_BOOTTIME. Only
// differences of readings mean something.
func Now() time.Duration { return clockGettime(7) }

func clockGettime(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
