//go:build !linux

package history

import "time"

var start = time.Now()

// Now is the wall clock's reading when the process began, plus the time since: processes agree as
// well as the wall clock stood still between their beginnings. On Linux it is exact.
func Now() int64 { return start.UnixNano() + int64(time.Since(start)) }
