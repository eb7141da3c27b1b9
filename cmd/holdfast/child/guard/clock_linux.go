package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the boot, sleep of the machine included, on a clock that nobody can
// set. All processes of the machine read the same.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // exists since Linux 2.6.39
	return time.Duration(ts.Nano())
}

// alarm is a descriptor that can be read from a certain time on. It rings even if that time
// passes while the machine sleeps, when it wakes up.
type alarm int

func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return -1
	}
	return alarm(fd)
}

// set makes the alarm ring at the time at. Without an alarm, the patience it returns in
// milliseconds has to do.
func (a alarm) set(at time.Duration) (patience int) {
	if a < 0 {
		return briefly(at)
	}
	var spec unix.ItimerSpec // zero: it does not ring
	if at != Never {
		spec.Value = unix.NsecToTimespec(int64(max(at, 1)))
	}
	if unix.TimerfdSettime(int(a), unix.TFD_TIMER_ABSTIME, &spec, nil) != nil {
		return briefly(at)
	}
	return -1
}
