//go:build unix

package child

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
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
	j := &job{Command: command(t, "sleep"), pid: pid, deadline: deadline{guard: g},
		suspension: suspension{pend: new(stopsOf).pend}}
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
		l := launch{pid: j.pid, started: func() error { <-begin; return nil }, done: func() bool { return false }}
		began <- j.starting(l, statuses)
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

// TestStopsItselfAtOnce: the command stops before this process has learned that it has begun. It stays stopped.
func TestStopsItselfAtOnce(t *testing.T) {
	for _, failed := range []error{nil, errors.New("it cannot run")} {
		j := &job{Command: command(t, "sleep"), pid: sleeper(t)}
		begin, statuses, began := make(chan struct{}), make(chan syscall.WaitStatus), make(chan error, 1)
		go func() {
			l := launch{pid: j.pid, started: func() error { <-begin; return failed }, done: func() bool { return true }}
			began <- j.starting(l, statuses)
		}()
		_ = syscall.Kill(j.pid, syscall.SIGSTOP)
		statuses <- waitFor(t, j.pid, "itself", syscall.WaitStatus.Stopped)
		close(begin)
		if failed != nil { // the launcher was stopped and continued, and has ended
			statuses <- syscall.WaitStatus(1 << 8)
		}
		if err := <-began; !errors.Is(err, failed) {
			t.Errorf("%v; want %v", err, failed)
		}
		if j.halted != (failed == nil) {
			t.Errorf("halted: %v", j.halted)
		}
		var ws syscall.WaitStatus
		if pid, _ := syscall.Wait4(j.pid, &ws, syscall.WCONTINUED|syscall.WNOHANG, nil); failed == nil && pid != 0 {
			t.Errorf("the command has a new state: %#x", int(ws))
		}
	}
}

// TestEndedBeforeItBegins: the launcher's end is seen before its error, or after it.
func TestEndedBeforeItBegins(t *testing.T) {
	failed := errors.New("it cannot run")
	for _, first := range []string{"the end", "the error"} {
		j := &job{Command: command(t, "sleep"), pid: sleeper(t)}
		begin, statuses, began := make(chan struct{}), make(chan syscall.WaitStatus), make(chan error, 1)
		go func() {
			l := launch{pid: j.pid, started: func() error { <-begin; return failed }, done: func() bool { return false }}
			began <- j.starting(l, statuses)
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

// stops returns a Stops that only reports whether it stops this process.
func stops() (s *Stops, halted chan struct{}) {
	halted = make(chan struct{}, 1)
	s = &Stops{signals: make(chan os.Signal, 2), pend: func() stopper {
		return testStop{func() { halted <- struct{}{} }}
	}}
	s.Uses(func(context.Context) (func(), error) { return func() {}, nil })
	return s, halted
}

// testStop is a stop that is not carried out.
type testStop struct{ acts func() }

func (s testStop) act(bool) (undo func()) { s.acts(); return func() {} }

func (testStop) drop() {}

func (testStop) again() {}

// passedOn fails the test unless the command gets the stop, and this process did not stop.
func passedOn(t *testing.T, s *Stops, halted chan struct{}) {
	t.Helper()
	select {
	case got := <-s.signals:
		if got != syscall.SIGTSTP {
			t.Errorf("the command gets %v", got)
		}
	default:
		t.Error("the command gets no signal")
	}
	select {
	case <-halted:
		t.Error("a stop takes effect before the command has begun")
	default:
	}
}

// TestStopIsPutOff: a stop before the command begins is for the command. Nothing stops this process between
// the grant and that, not even news about a place in a queue.
func TestStopIsPutOff(t *testing.T) {
	s, halted := stops()
	s.signals = make(chan os.Signal, 2)
	_ = PutOff(s.signals)
	defer signal.Stop(s.signals)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	s.Got(<-s.signals)
	s.Acquired()
	s.Queued() // for another lock
	s.Granted()
	passedOn(t, s, halted)
}

// TestStopDuringTheRequest: a stop in the queue waits for the request that is under way. If that gets the
// lock, the stop is for the command.
func TestStopDuringTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, halted := stops()
		s.Uses(func(context.Context) (func(), error) {
			s.Acquired()
			return func() {}, nil
		})
		s.Queued()
		s.Got(syscall.SIGTSTP)
		time.Sleep(stopAtMost / 2)
		synctest.Wait()
		s.Granted()
		passedOn(t, s, halted)
	})
}

// TestStopInAPausedStore: a stop in the queue takes effect while the store is paused, and the next one in
// the next pause.
func TestStopInAPausedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stops()
		paused, halts := false, 0
		s.pend = func() stopper {
			return testStop{func() {
				if halts++; !paused {
					t.Error("the store is not paused")
				}
			}}
		}
		s.Uses(func(context.Context) (func(), error) {
			paused = true
			return func() { paused = false }, nil
		})
		s.Queued()
		for want := range 2 {
			s.Got(syscall.SIGTSTP)
			time.Sleep(stopAtMost / 2)
			synctest.Wait()
			if halts != want+1 || paused {
				t.Errorf("%d stops, want %d; still paused: %v", halts, want+1, paused)
			}
		}
	})
}

// TestStopOfASilentStore: a store that cannot be paused delays a stop, and does not prevent it. A process
// that is continued meanwhile does not stop.
func TestStopOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, halted := stops()
		s.Uses(func(context.Context) (func(), error) { return nil, context.DeadlineExceeded })
		s.Queued()
		s.Got(syscall.SIGTSTP)
		time.Sleep(stopAtMost)
		s.Got(syscall.SIGCONT)
		time.Sleep(time.Hour)
		if len(halted) != 0 {
			t.Fatal("stopped after it was continued")
		}
		start := time.Now()
		s.Got(syscall.SIGTSTP)
		<-halted
		if took := time.Since(start); took < stopAtMost || took > (stopTries+1)*stopAtMost {
			t.Errorf("stopped after %v", took)
		}
	})
}

// TestStopOfAnEarlierWait: a stop that waits for the request under way is forgotten with the grant. It is
// not there for the next one, which comes when the command has ended.
func TestStopOfAnEarlierWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, halted := stops()
		granted := make(chan struct{})
		s.Uses(func(context.Context) (func(), error) { <-granted; return func() {}, nil })
		s.Queued()
		s.Got(syscall.SIGTSTP)
		s.Acquired()
		s.Granted()
		passedOn(t, s, halted)
		s.Over()
		s.Got(syscall.SIGTSTP)
		close(granted)
		time.Sleep(stopAtMost / 2)
		if len(halted) != 0 {
			t.Error("stopped before the release")
		}
		time.Sleep(stopAtMost)
		if len(halted) != 1 {
			t.Error("not stopped in time")
		}
	})
}

// TestGrantOfTheLastTry: a store that cannot be paused grants a lock during the last try. The stop does not
// come between that grant and the start of the command.
func TestGrantOfTheLastTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, halted := stops()
		asked := 0
		s.Uses(func(context.Context) (func(), error) {
			if asked++; asked == stopTries+1 {
				s.Acquired()
			}
			return nil, context.DeadlineExceeded
		})
		s.Queued()
		s.Got(syscall.SIGTSTP)
		time.Sleep((stopTries + 1) * stopAtMost)
		if synctest.Wait(); asked <= stopTries {
			t.Fatalf("the store was asked %d times", asked)
		}
		s.Granted()
		passedOn(t, s, halted)
	})
}

// TestStopBeforeTheStoreIsOpen: a stop waits while nothing is known of the store.
func TestStopBeforeTheStoreIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, halted := stops()
		s.Uses(nil)
		s.Got(syscall.SIGTSTP)
		time.Sleep(stopAtMost * 3 / 2)
		if len(halted) != 0 {
			t.Error("stopped while the store opens")
		}
		s.Uses(func(context.Context) (func(), error) { return func() {}, nil })
		time.Sleep(2 * stopAtMost)
		if len(halted) != 1 {
			t.Error("not stopped when the store was open")
		}
	})
}

// TestStopWhenTheStoreOpens: the store opens during the last try. It is paused before the stop.
func TestStopWhenTheStoreOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, halted := stops()
		s.Uses(nil)
		s.Got(syscall.SIGTSTP)
		time.Sleep(stopTries*stopAtMost + (stopTries-1)*newsLimit + newsLimit/2)
		var paused atomic.Bool
		s.Uses(func(context.Context) (func(), error) { paused.Store(true); return func() {}, nil })
		<-halted
		if !paused.Load() {
			t.Error("stopped although the store was not paused")
		}
	})
}
