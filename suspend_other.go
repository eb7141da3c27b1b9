//go:build !linux

package holdfast

import "time"

// suspended cannot be told here: a lease that outlived a sleep of the machine is then
// ended by the first renewal after it, not at once.
func suspended() time.Duration { return 0 }
