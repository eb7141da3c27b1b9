//go:build !linux

package testenv

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// bound runs f, which starts cmd and waits for it.
func bound(_ *exec.Cmd, f func()) { go f() }

// claim does nothing: on this system tests that run in parallel may use the same port.
func claim(testing.TB, int) bool { return true }

// processes returns the processes of the machine by id.
func processes() (map[int]status, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=").Output()
	all := map[int]status{}
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		var state string
		if n, _ := fmt.Sscan(line, &pid, &parent, &state); n == 3 {
			all[pid] = status{parent, state[0]}
		}
	}
	return all, err
}

// threadsStopped adds nothing to processes.
func threadsStopped(int) bool { return true }
