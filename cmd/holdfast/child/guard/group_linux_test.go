package guard

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// threadVariable makes this program end its first thread, and sleep in another one.
const threadVariable = "GUARD_TEST_THREAD"

func init() {
	if os.Getenv(threadVariable) != "" {
		runtime.LockOSThread() // an init function runs on the first thread
		go func() { time.Sleep(time.Hour); os.Exit(0) }()
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// TestAliveWithoutItsFirstThread: the first thread of a process is a zombie, and another one still works.
func TestAliveWithoutItsFirstThread(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), threadVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), ") Z ") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !Alive(pid) {
		t.Error("the process counts as ended")
	}
}
