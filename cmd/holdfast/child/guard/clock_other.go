//go:build unix && !linux

package guard

import "time"

// Now returns the wall clock: these systems have no other clock that all processes share and that
// counts sleep. A clock that is set forward ends a command early; one that is set back makes the
// guard act later by as much.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

// alarm does nothing here: set returns a short timeout.
type alarm int

func newAlarm() alarm { return -1 }

func (alarm) set(at time.Duration) (timeout int) { return pollTimeout(at) }
