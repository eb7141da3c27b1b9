package child

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// ownGroup starts a process as the leader of a group, to be killed with this process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// alive reports whether a group whose leader has been waited for still has members that
// run. What has ended but is not waited for by its parent does not count: in a container
// without an init nobody may ever do that.
func alive(group int) bool {
	for { // those who were left to this process, because it is the init or a subreaper
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
			break
		}
	}
	// EPERM is a group, too: of programs that change their user, and that this process may not signal.
	if err := syscall.Kill(-group, 0); err == syscall.ESRCH {
		return false
	}
	// A member could be born behind a search and its parent end before it, so that one
	// search sees neither: only two in a row are believed.
	for range 2 {
		if running(group) {
			return true
		}
	}
	return false
}

// running searches /proc for a member of a group that has some, and reports whether one has not
// ended. Of a member that /proc does not show to this user nobody knows, so it counts.
func running(group int) bool {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	ended, hidden := 0, true
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if pid == 1 {
			hidden = false
		}
		state, of, err := stat(pid)
		switch {
		case errors.Is(err, fs.ErrPermission):
			if of, err := syscall.Getpgid(pid); err == nil && of == group {
				return true
			}
		case err != nil: // it has just ended
		case of == group && (state == 'Z' || state == 'X'):
			ended++
		case of == group:
			return true
		}
	}
	return hidden || ended == 0
}

// stat is the state of a process and the number of its group.
func stat(pid int) (state byte, group int, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// pid (command) state parent group; the command may contain anything.
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 3 {
		return 0, 0, fs.ErrNotExist
	}
	group, err = strconv.Atoi(string(f[2]))
	return f[0][0], group, err
}
