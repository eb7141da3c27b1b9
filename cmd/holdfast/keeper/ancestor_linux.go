package keeper

import (
	"bytes"
	"os"
	"strconv"
)

// Ancestor reports whether a process is this one, its parent, or an ancestor of that, or the first
// process of its session.
func Ancestor(pid int) bool {
	if pid <= 0 {
		return false
	}
	if pid == sessionOf() {
		return true
	}
	for at := os.Getpid(); at > 0; at = parent(at) {
		if at == pid {
			return true
		}
	}
	return false
}

// parent returns the number of a process's parent, 0 if it is unknown.
func parent(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// pid (command) state parent; the command may contain anything.
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(string(f[1]))
	return n
}
