package guard

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// Alive reports whether a group still has running members. A
// zombie does not count: in a container without an init, nobody may ever wait for it.
func Alive(group int) bool {
	for { // children that this process inherited as the init or a subreaper
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
			break
		}
	}
	if !exists(group) {
		return false
	}
	// One search can miss both a new member and its parent, which ends before the search reaches
	// it. So two searches in a row must find none.
	for range 2 {
		if running(group) { // also if the last zombie has just gone
			return exists(group)
		}
	}
	return false
}

// exists reports whether a group has members, zombies included. EPERM means that its programs changed
// their user.
func exists(group int) bool { return syscall.Kill(-group, 0) != syscall.ESRCH }

// running searches /proc for members of a group that exists, and reports whether one is no zombie.
// A member that /proc hides from this user counts as running.
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
		ends, of, err := stat(pid)
		switch {
		case errors.Is(err, fs.ErrPermission):
			if of, err := syscall.Getpgid(pid); err == nil && of == group {
				return true
			}
		case err != nil: // it has just ended
		case of == group && ends:
			ended++
		case of == group:
			return true
		}
	}
	return hidden || ended == 0
}

// stat reports whether a process has ended, and returns the number of its group. The first thread of a process may be a
// zombie while others still write.
func stat(pid int) (ended bool, group int, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false, 0, err
	}
	// pid (command) state parent group; the command may contain anything. The 20th field is the number of threads.
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 18 {
		return false, 0, fs.ErrNotExist
	}
	threads, err := strconv.Atoi(string(f[17]))
	if err != nil {
		return false, 0, err
	}
	group, err = strconv.Atoi(string(f[2]))
	state := f[0][0]
	return (state == 'Z' || state == 'X') && threads <= 1, group, err
}
