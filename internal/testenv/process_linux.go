package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bound runs f, which starts cmd and waits for it, so that cmd dies with this process. The kernel
// binds cmd to the thread that started it, so f locks its thread.
func bound(cmd *exec.Cmd, f func()) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}()
}

// claim keeps a port for t against all tests of the machine, even while its server is down. It
// returns false if another test has the port. The claim is a lock on a byte of a file.
func claim(t testing.TB, port int) bool {
	t.Helper()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-testenv-ports-%d", os.Getuid()))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(port), Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		_ = file.Close()
		return false
	}
	t.Cleanup(func() { _ = file.Close() })
	return true
}

// processes returns the processes of the machine by id.
func processes() (map[int]status, error) { return readStatus("/proc/[1-9]*/stat") }

// threadsStopped reports whether all threads of pid are stopped. The first may stop before the
// others.
func threadsStopped(pid int) bool {
	all, err := readStatus("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, s := range all {
		if s.state != 'T' && s.state != 'Z' {
			return false
		}
	}
	return err == nil
}

// readStatus reads the status files that match a pattern, each in the folder of a process or
// thread.
func readStatus(pattern string) (map[int]status, error) {
	paths, err := filepath.Glob(pattern)
	all := make(map[int]status, len(paths))
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
			all[id] = status{parent, fields[0][0]}
		}
	}
	return all, err
}
