//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// sleeper starts a process in a group of its own.
func sleeper(t *testing.T) (pid int) {
	t.Helper()
	sleep := exec.Command("sleep", "1000")
	sleep.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	return sleep.Process.Pid
}

// waitFor waits until the state of a process changes.
func waitFor(t *testing.T, pid int, what string, is func(syscall.WaitStatus) bool) (ws syscall.WaitStatus) {
	t.Helper()
	_, err := syscall.Wait4(pid, &ws, syscall.WUNTRACED|syscall.WCONTINUED, nil)
	if err != nil || !is(ws) {
		t.Fatalf("%s: %v, %v", what, ws, err)
	}
	return ws
}

// TestStoppedForLong: this process was stopped for longer than resume takes. SIGCONT continues the
// command, once. If no SIGCONT comes, because nobody could stop this process, resume does that.
func TestStoppedForLong(t *testing.T) {
	pid := sleeper(t)
	wait := func(what string, is func(syscall.WaitStatus) bool) syscall.WaitStatus {
		t.Helper()
		return waitFor(t, pid, what, is)
	}
	stopped := func(what string) {
		t.Helper()
		var ws syscall.WaitStatus
		if n, err := syscall.Wait4(pid, &ws, syscall.WCONTINUED|syscall.WNOHANG, nil); n != 0 || err != nil {
			t.Fatalf("%s: %v, %v; want no change", what, ws, err)
		}
	}
	g, err := guard.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Dismiss()
	j := &job{Command: command(t, "sleep"), pid: pid, deadline: deadline{guard: g}}
	j.begin()
	suspended := func() { // but for the stop of this process
		t.Helper()
		_ = syscall.Kill(pid, syscall.SIGTSTP)
		j.changed(wait("a key", syscall.WaitStatus.Stopped))
		j.undo, j.timely = func() {}, false
		j.setResume()
	}
	suspended()
	j.due -= time.Hour
	j.notStopped()
	stopped("resume is late")
	if j.resume == nil {
		t.Fatal("resume is not set")
	}
	j.pass(syscall.SIGCONT)
	j.changed(wait("SIGCONT", syscall.WaitStatus.Continued))
	if j.resume != nil {
		t.Error("resume is set after SIGCONT")
	}
	suspended()
	j.due += time.Hour
	j.notStopped()
	stopped("resume is in time once")
	j.due -= time.Hour
	j.notStopped()
	stopped("resume is late the second time")
	for range 2 {
		stopped("before resume is in time twice")
		j.due += time.Hour
		j.notStopped()
	}
	j.changed(wait("resume is in time twice", syscall.WaitStatus.Continued))
}

// TestStoppedBeforeItBegins: a key stops the launcher before it executes the command. The launcher goes
// on, and the command stops.
func TestStoppedBeforeItBegins(t *testing.T) {
	j := &job{Command: command(t, "sleep"), pid: sleeper(t)}
	begin, statuses, began := make(chan struct{}), make(chan syscall.WaitStatus), make(chan error, 1)
	go func() {
		began <- j.starting(launch{pid: j.pid, started: func() error { <-begin; return nil }}, statuses)
	}()
	_ = syscall.Kill(j.pid, syscall.SIGTSTP)
	statuses <- waitFor(t, j.pid, "a key", syscall.WaitStatus.Stopped)
	statuses <- waitFor(t, j.pid, "the launcher", syscall.WaitStatus.Continued)
	close(begin)
	if err := <-began; err != nil {
		t.Error(err)
	}
	waitFor(t, j.pid, "the command", syscall.WaitStatus.Stopped)
}

// TestEndedBeforeItBegins: the launcher's end is seen before its error, or after it.
func TestEndedBeforeItBegins(t *testing.T) {
	failed := errors.New("it cannot run")
	for _, first := range []string{"the end", "the error"} {
		j := &job{Command: command(t, "sleep"), pid: sleeper(t)}
		begin, statuses, began := make(chan struct{}), make(chan syscall.WaitStatus), make(chan error, 1)
		go func() {
			began <- j.starting(launch{pid: j.pid, started: func() error { <-begin; return failed }}, statuses)
		}()
		if first == "the error" {
			close(begin)
		}
		const stopped, exited = syscall.WaitStatus(0x147f), syscall.WaitStatus(1 << 8)
		statuses <- stopped
		statuses <- exited
		if first == "the end" {
			close(begin)
		}
		if err := <-began; !errors.Is(err, failed) {
			t.Errorf("%s first: %v", first, err)
		}
	}
}

// TestStopIsPutOff: a stop before the command begins is for the command. Nothing stops this process between
// the grant and that, not even news about a place in a queue.
func TestStopIsPutOff(t *testing.T) {
	signals := make(chan os.Signal, 2)
	s := PutOff(signals)
	defer func() {
		s.restore()
		signal.Stop(signals)
	}()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	s.Got(<-signals)
	s.Acquired()
	s.Queued() // for another lock
	s.Granted()
	select {
	case got := <-signals:
		if got != syscall.SIGTSTP {
			t.Errorf("the command gets %v", got)
		}
	default:
		t.Error("the command gets no signal")
	}
	if s.restore == nil {
		t.Error("a stop takes effect before the command has begun")
	}
}
