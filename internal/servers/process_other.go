//go:build !linux

package servers

import (
	"fmt"
	"os/exec"
	"strings"
)

// Tie runs f, which starts cmd and waits for it.
func Tie(_ *exec.Cmd, f func()) { go f() }

// Bind changes nothing: only Linux can kill a process with the one that started it.
func Bind(*exec.Cmd) {}

func ownGroup(*exec.Cmd) {}

// Processes returns the processes of the machine by id.
func Processes() (map[int]Status, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=").Output()
	all := map[int]Status{}
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		var state string
		if n, _ := fmt.Sscan(line, &pid, &parent, &state); n == 3 {
			all[pid] = Status{parent, state[0]}
		}
	}
	return all, err
}

// Frozen cannot tell on these systems.
func Frozen(int) (is, known bool) { return false, false }
