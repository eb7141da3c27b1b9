package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Tie runs f, which starts cmd and waits for it, so that cmd dies with this process. The kernel
// binds cmd to the thread that started it, so f locks its thread.
func Tie(cmd *exec.Cmd, f func()) {
	Bind(cmd)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}()
}

// Bind has the kernel kill cmd's process when the thread that starts it ends, and so when this
// process dies.
func Bind(cmd *exec.Cmd) { attributes(cmd).Pdeathsig = syscall.SIGKILL }

// ownGroup makes cmd the leader of a process group.
func ownGroup(cmd *exec.Cmd) { attributes(cmd).Setpgid = true }

func attributes(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

// Processes returns the processes of the machine by id.
func Processes() (map[int]Status, error) { return readStatus("/proc/[1-9]*/stat") }

// Frozen reports whether all threads of a process that is being stopped have stopped, if the system
// tells. The first may stop before the others.
func Frozen(pid int) (is, known bool) {
	all, _ := readStatus("/proc/" + strconv.Itoa(pid) + "/task/*/stat") // the pattern is valid
	for _, s := range all {
		if !strings.ContainsRune("TZX", rune(s.State)) {
			return false, true
		}
	}
	return len(all) > 0, len(all) > 0
}

// readStatus reads the status files that match a pattern, each in the folder of a process or
// thread.
func readStatus(pattern string) (map[int]Status, error) {
	paths, err := filepath.Glob(pattern)
	all := make(map[int]Status, len(paths))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The second field is the name in parentheses, which may contain parentheses.
		text := string(b)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			all[id] = Status{parent, fields[0][0]}
		}
	}
	return all, err
}
