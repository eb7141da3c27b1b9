package verify

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// tiedToParent runs f, which starts cmd and waits for it, so that cmd dies with this process. The
// kernel ties it to the thread that started it, so f keeps its thread to itself. ^C is for the
// coordinator, which ends its workers.
func tiedToParent(cmd *exec.Cmd, f func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}()
}

// frozen reports whether all threads of a process that is being stopped have stopped.
func frozen(pid int) (is, known bool) {
	stats, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in parentheses and may contain some.
		rest := bytes.TrimSpace(text[bytes.LastIndexByte(text, ')')+1:])
		if len(rest) == 0 || !bytes.ContainsRune([]byte("TZX"), rune(rest[0])) {
			return false, true
		}
	}
	return len(stats) > 0, len(stats) > 0
}
