//go:build !linux

package history

import "time"

var start = time.Now()

// Now returns the wall clock's reading at the start of the process, plus the time since. Times of
// two processes agree unless the wall clock was set between their starts. On Linux it is exact.
func Now() int64 { return start.UnixNano() + int64(time.Since(start)) }
