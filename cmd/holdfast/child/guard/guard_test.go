//go:build unix

package guard

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func started(t *testing.T) *Guard {
	t.Helper()
	g, err := Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// launch runs a shell script in a group of its own.
func launch(t *testing.T, g *Guard, script string) int {
	t.Helper()
	l, err := g.Launch("/bin/sh", []string{"sh", "-c", script}, os.Environ(), &syscall.SysProcAttr{Setpgid: true})
	if err == nil {
		err = l.Started()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.PID
}

// abandon closes the pipe, which is how a guard notices the end of a process.
func (g *Guard) abandon() {
	g.mu.Lock()
	g.dismissed = true
	syscall.Close(g.pipe)
	g.mu.Unlock()
	<-g.unwatched
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

// replaced waits until another guard has replaced the first one.
func replaced(t *testing.T, g *Guard, first int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // no event reports it
		g.mu.Lock()
		pid := g.pid
		g.mu.Unlock()
		if pid != first {
			return
		}
		if time.Now().After(end) {
			t.Fatal("there is no other guard")
		}
	}
}

func TestGuardKillsTheGroup(t *testing.T) {
	g := started(t)
	pid := launch(t, g, "trap '' TERM HUP; sleep 1000; true")
	g.abandon()
	if ws := wait(t, pid); ws.Signal() != syscall.SIGKILL {
		t.Errorf("%v", ws)
	}
}

// The guard keeps the files of the process that started it until the group has ended. Others see by the lock on such
// a file whether the process lives.
func TestGuardKeepsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "presence")
	lock := func(how int) (*os.File, error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f, syscall.Flock(int(f.Fd()), how)
	}
	f, err := lock(syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Start([]*os.File{f})
	if err != nil {
		t.Fatal(err)
	}
	g.Until(Never, Never, Now()+time.Minute) // a killed group may end late on a busy machine
	pid := launch(t, g, "trap '' TERM HUP; sleep 1000; true")
	g.mu.Lock()
	first := g.pid
	g.mu.Unlock()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil { // another one gets the files, too
		t.Fatal(err)
	}
	replaced(t, g, first)
	g.drop() // as if this process had ended
	if f, err := lock(syscall.LOCK_EX | syscall.LOCK_NB); err != syscall.EWOULDBLOCK {
		t.Errorf("the guard does not keep the file: %v", err)
		f.Close()
	}
	g.abandon()
	f, err = lock(syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if Alive(pid) {
		t.Error("the group has not ended")
	}
}

// A guard keeps its files as long as it is told to, if the group does not end.
func TestGuardKeepsTrying(t *testing.T) {
	alive = func(int) bool { return true }
	defer func() { alive = Alive }()
	for _, keep := range []time.Duration{0, Now() + killTime*3/2} {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		begin := Now()
		kill(cmd.Process.Pid, keep)
		if now := Now(); now < keep || now < begin+killTime {
			t.Errorf("it has given up after %v, before %v", now-begin, keep-begin)
		}
		_ = cmd.Wait()
	}
}

// A message with zero fields leaves the others as they were.
func TestOrders(t *testing.T) {
	o := orders{1, 2, 3, 4}
	o.read(orders{}.append(nil))
	if o != (orders{1, 2, 3, 4}) {
		t.Errorf("%+v", o)
	}
	if o.read(orders{5, 6, 7, 8}.append(nil)); o != (orders{5, 6, 7, 8}) {
		t.Errorf("%+v", o)
	}
}

func TestDismissedGuardKillsNobody(t *testing.T) {
	g := started(t)
	pid := launch(t, g, "exec sleep 1000")
	g.Until(Never, Now()+time.Hour, 0)
	g.Dismiss()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if ws := wait(t, pid); ws.Signal() != syscall.SIGTERM {
		t.Errorf("%v", ws)
	}
}

// A guard without a group ends by itself, and does nothing when its time has come.
func TestIdleGuardEnds(t *testing.T) {
	g := started(t)
	g.Until(0, Now(), 0)
	g.abandon()
}

// The guard asks the group to end at one time and kills it at another, even if it is stopped.
func TestGuardActsOnTime(t *testing.T) {
	for name, c := range map[string]struct {
		script    string
		stop, ask bool
		want      syscall.Signal
	}{
		"the end":          {"trap '' TERM; sleep 1000; true", false, false, syscall.SIGKILL},
		"the end, stopped": {"trap '' TERM; sleep 1000; true", true, false, syscall.SIGKILL},
		"asked":            {"exec sleep 1000", false, true, syscall.SIGTERM},
		"asked, stopped":   {"exec sleep 1000", true, true, syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			g := started(t)
			defer g.Dismiss()
			g.Until(Never, Now()+time.Hour, 0)
			pid := launch(t, g, c.script)
			if c.stop {
				if err := syscall.Kill(-pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			begin := Now()
			at := begin + 200*time.Millisecond
			if c.ask {
				g.Until(at, begin+time.Hour, 0)
			} else {
				g.Until(Never, at, 0)
			}
			ws := wait(t, pid)
			if took := Now() - begin; ws.Signal() != c.want || took < at-begin {
				t.Errorf("%v after %v", ws, took)
			}
		})
	}
}

// Another guard with the same orders replaces one that was stopped or killed.
func TestGuardIsReplaced(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(s.String(), func(t *testing.T) {
			g := started(t)
			defer g.Dismiss()
			pid := launch(t, g, "trap '' TERM; sleep 1000; true")
			g.Until(Never, Now()+time.Second, 0)
			g.mu.Lock()
			first := g.pid
			g.mu.Unlock()
			if err := syscall.Kill(first, s); err != nil {
				t.Fatal(err)
			}
			if ws := wait(t, pid); ws.Signal() != syscall.SIGKILL {
				t.Errorf("%v", ws)
			}
			replaced(t, g, first) // the first one may have killed the group before its own end
		})
	}
}

// Later orders in the pipe overrule earlier ones that are already due.
func TestGuardReadsBeforeItActs(t *testing.T) {
	g := started(t)
	defer g.Dismiss()
	pid := launch(t, g, "exec sleep 1000")
	b := orders{ask: 1, end: 1}.append(nil)
	b = orders{ask: Never, end: Now() + time.Hour}.append(b)
	if n, err := syscall.Write(g.pipe, b); n != len(b) || err != nil {
		t.Fatal(n, err)
	}
	time.Sleep(50 * time.Millisecond) // no event shows that nothing happens
	var ws syscall.WaitStatus
	if got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil); got != 0 || err != nil {
		t.Fatalf("the group has ended: %v, %v", ws, err)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	wait(t, pid)
}

// A launcher is done when it has closed its end of the pipe, not when it has written an error.
func TestLauncherDone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l := &Launched{status: r}
	if l.Done() {
		t.Error("done before it has written anything")
	}
	if _, err := w.Write(binary.NativeEndian.AppendUint32(nil, uint32(tooLate))); err != nil {
		t.Fatal(err)
	}
	if l.Done() {
		t.Error("done before it has closed the pipe")
	}
	w.Close()
	if !l.Done() {
		t.Error("not done")
	}
	if err := l.Started(); !errors.Is(err, ErrLate) {
		t.Error(err)
	}
	if !l.Done() {
		t.Error("not done after Started")
	}
}

// A command whose time is over does not begin.
func TestLateCommandDoesNotBegin(t *testing.T) {
	g := started(t)
	defer g.Dismiss()
	g.Until(Never, Now(), 0)
	file := filepath.Join(t.TempDir(), "ran")
	l, err := g.Launch("/bin/sh", []string{"sh", "-c", ">" + file}, os.Environ(), &syscall.SysProcAttr{Setpgid: true})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Started()
	ws := wait(t, l.PID)
	if !errors.Is(err, ErrLate) && ws.Signal() != syscall.SIGKILL {
		t.Errorf("%v, %v", err, ws)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}
