//go:build unix

package guard

import (
	"os"
	"syscall"
	"testing"
)

func launch(t *testing.T, g *Guard, args ...string) int {
	t.Helper()
	pid, started, err := g.Launch(args[0], args, os.Environ(), &syscall.SysProcAttr{Setpgid: true})
	if err == nil {
		err = started()
	}
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func wait(t *testing.T, pid int) (ws syscall.WaitStatus) {
	t.Helper()
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err == nil {
			return ws
		} else if err != syscall.EINTR {
			t.Fatal(err)
		}
	}
}

// The pipe that closes is all that a guard sees of the end of a process.
func TestGuardKillsTheGroup(t *testing.T) {
	g, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	pid := launch(t, g, "/bin/sh", "-c", "trap '' TERM HUP; sleep 1000; true")
	g.pipe.Close()
	if ws := wait(t, pid); ws.Signal() != syscall.SIGKILL {
		t.Errorf("%v", ws)
	}
	wait(t, g.pid)
}

func TestDismissedGuardKillsNobody(t *testing.T) {
	g, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	pid := launch(t, g, "/bin/sleep", "1000")
	g.Dismiss()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if ws := wait(t, pid); ws.Signal() != syscall.SIGTERM {
		t.Errorf("%v", ws)
	}
}

// A guard of nothing ends by itself.
func TestIdleGuardEnds(t *testing.T) {
	g, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	g.pipe.Close()
	if ws := wait(t, g.pid); !ws.Exited() {
		t.Errorf("%v", ws)
	}
}
