//go:build unix

package child

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// suspended returns a job whose command has stopped, and which is about to stop this process. Stops are
// counted, and not carried out.
func suspended(t *testing.T) (j *job, halts *int) {
	t.Helper()
	c := command(t, "sleep")
	c.Signals = make(chan os.Signal, 2)
	g, err := guard.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Dismiss)
	j = &job{Command: c, pid: sleeper(t), statuses: make(chan syscall.WaitStatus, 1), deadline: deadline{guard: g}}
	j.begin()
	j.asked = time.Now()
	_ = syscall.Kill(j.pid, syscall.SIGTSTP)
	j.changed(waitFor(t, j.pid, "a key", syscall.WaitStatus.Stopped))
	if j.halt == nil {
		t.Fatal("this process does not stop")
	}
	j.halt.drop()
	halts = new(int)
	j.halt = testStop{func() { *halts++ }}
	return j, halts
}

// fires calls noNews as if settle had fired in time.
func (j *job) fires() {
	j.due = guard.Now() + time.Hour
	j.noNews()
}

// pauses lets settle fire in time until the store is being paused, and returns the result.
func (j *job) pauses(t *testing.T) paused {
	t.Helper()
	for range 2 {
		if j.pausing != nil {
			t.Error("the store is being paused before settle has been in time twice")
		}
		j.fires()
	}
	if j.pausing == nil {
		t.Fatal("the store is not being paused")
	}
	return <-j.pausing
}

// TestContinuedBeforeItsStopIsSeen: a SIGCONT is passed on when the command has just stopped, before its
// status is received. The next status says that it was continued, and this process does not stop, whenever
// it receives that.
func TestContinuedBeforeItsStopIsSeen(t *testing.T) {
	for _, when := range []string{"while it settles", "while the store is being paused"} {
		j, halts := suspended(t)
		var p paused
		if when != "while it settles" {
			p = j.pauses(t)
		}
		_ = syscall.Kill(j.pid, syscall.SIGCONT)
		j.statuses <- waitFor(t, j.pid, "SIGCONT", syscall.WaitStatus.Continued)
		if p.resume != nil {
			j.storePaused(p)
		} else {
			j.fires()
		}
		if j.halted || j.halt != nil || j.settle != nil || j.resume != nil || *halts != 0 {
			t.Errorf("%s: the command counts as stopped: %v; this process stopped %d times", when, j.halted, *halts)
		}
	}
}

// TestStopWithNews: a signal that was not received yet, or a machine that stood still, delays a stop.
func TestStopWithNews(t *testing.T) {
	j, halts := suspended(t)
	j.Signals <- syscall.SIGCONT
	for range 3 {
		j.fires()
	}
	if j.pausing != nil {
		t.Error("a signal that was not received does not delay a stop")
	}
	<-j.Signals
	for range 3 {
		j.due = guard.Now() - time.Hour
		j.noNews()
	}
	if j.pausing != nil {
		t.Error("a machine that stood still does not delay a stop")
	}
	j.fires() // once, and the next call is late
	j.due = guard.Now() - time.Hour
	j.noNews()
	p := j.pauses(t)
	j.Signals <- syscall.SIGCONT
	j.storePaused(p)
	if j.halt == nil || j.settle == nil || *halts != 0 {
		t.Error("a signal that came while the store was being paused does not delay a stop")
	}
	<-j.Signals
	j.storePaused(j.pauses(t))
	if *halts != 1 || j.resume == nil {
		t.Errorf("stopped %d times", *halts)
	}
}

// TestStopOfABusyStore: a store that cannot be paused delays a stop, and does not prevent it. A store that
// was paused is not paused any more after the stop.
func TestStopOfABusyStore(t *testing.T) {
	j, halts := suspended(t)
	j.Pause = func(context.Context) (func(), error) { return nil, context.DeadlineExceeded }
	for tries := 1; *halts == 0; tries++ {
		if j.storePaused(j.pauses(t)); tries > pauseTries {
			t.Fatal("it never stops")
		}
		if tries < pauseTries && *halts != 0 {
			t.Errorf("stopped at try %d", tries)
		}
	}
	j, halts = suspended(t)
	pauses := 0
	j.Pause = func(context.Context) (func(), error) {
		pauses++
		return func() { pauses-- }, nil
	}
	p := j.pauses(t)
	j.halt = testStop{func() {
		if *halts++; pauses != 1 {
			t.Error("the store is not paused")
		}
	}}
	if j.storePaused(p); *halts != 1 || pauses != 0 {
		t.Errorf("stopped %d times; paused after that: %d times", *halts, pauses)
	}
	j, halts = suspended(t)
	j.Pause = func(context.Context) (func(), error) { return func() { pauses-- }, nil }
	pauses = 1
	p = j.pauses(t)
	j.pass(syscall.SIGCONT)
	if j.storePaused(p); *halts != 0 || pauses != 0 {
		t.Errorf("continued while the store was being paused: stopped %d times; still paused: %d", *halts, pauses)
	}
}

// TestStoppedLongAfterItWasAsked: a command that ignored a SIGTSTP is stopped by a debugger much later.
// Without a terminal this process does not stop then: nobody would continue it.
func TestStoppedLongAfterItWasAsked(t *testing.T) {
	j := &job{Command: command(t, "sleep"), pid: sleeper(t)}
	j.asked = time.Now().Add(-time.Hour)
	_ = syscall.Kill(j.pid, syscall.SIGSTOP)
	if j.changed(waitFor(t, j.pid, "a debugger", syscall.WaitStatus.Stopped)); j.halt != nil {
		j.halt.drop()
		t.Error("this process stops")
	}
}
