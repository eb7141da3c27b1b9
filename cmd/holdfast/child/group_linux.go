package child

import (
	"bytes"
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
	switch err := syscall.Kill(-group, 0); err {
	case nil:
		// A member could be born behind a search and its parent end before it, so that one
		// search sees neither: only two in a row are believed.
		for range 2 {
			if running(group) {
				return true
			}
		}
		return false
	case syscall.ESRCH:
		return false
	default:
		return true
	}
}

// running searches /proc for a member of the group that has not ended.
func running(group int) bool {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	listed := false
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		listed = true
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil { // it has just ended
			continue
		}
		// pid (command) state parent group; the command may contain anything.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) > 2 && string(f[2]) == strconv.Itoa(group) && string(f[0]) != "Z" && string(f[0]) != "X" {
			return true
		}
	}
	return !listed // without processes in it, /proc says nothing
}
