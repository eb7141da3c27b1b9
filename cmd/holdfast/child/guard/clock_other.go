//go:build unix && !linux

package guard

import "time"

// Now is the wall clock: these systems offer no other that all processes share and that
// counts sleep. Setting it forward ends a command early; setting it back leaves the guard
// waiting for as much longer.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

// alarm is none here.
type alarm int

func newAlarm() alarm { return -1 }

func (alarm) set(at time.Duration) (patience int) { return briefly(at) }
