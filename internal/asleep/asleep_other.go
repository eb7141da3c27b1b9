//go:build !linux

// Package asleep measures how long the machine has slept, where the system reports that.
package asleep

import "time"

// Total returns 0, because this system does not report it. A lease that survived a sleep of the
// machine then ends at the first renewal after the sleep, not at once.
func Total() time.Duration { return 0 }

var start = time.Now()

// Now returns the reading of a clock that goes on while the machine sleeps, where the system has one.
// Only differences of readings mean something.
func Now() time.Duration { return time.Since(start) }
