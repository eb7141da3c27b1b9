package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the boot, sleep of the machine included. Nobody can set this clock,
// and all processes of the machine read the same.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // exists since Linux 2.6.39
	return time.Duration(ts.Nano())
}

// alarm is a descriptor that becomes readable at a set time. If that time passes while the machine
// sleeps, the descriptor becomes readable at wake-up. Negative: there is no alarm.
type alarm int

func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return -1
	}
	return alarm(fd)
}

// set makes a readable at the time at. It returns a timeout for poll in milliseconds: -1, or with
// no alarm the time to wait.
func (a alarm) set(at time.Duration) (timeout int) {
	if a < 0 {
		return pollTimeout(at)
	}
	var spec unix.ItimerSpec // zero: never
	if at != Never {
		spec.Value = unix.NsecToTimespec(int64(max(at, 1)))
	}
	if unix.TimerfdSettime(int(a), unix.TFD_TIMER_ABSTIME, &spec, nil) != nil {
		return pollTimeout(at)
	}
	return -1
}
