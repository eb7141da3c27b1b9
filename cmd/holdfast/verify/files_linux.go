package verify

import "os"

// openFiles returns the number of open file descriptors of this process, or -1.
func openFiles() int64 {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return int64(len(list)) - 1 // without that of the folder itself
}
