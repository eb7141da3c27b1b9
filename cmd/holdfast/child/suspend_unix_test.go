//go:build unix

package child

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

// stopsOf counts the stops of a job.
type stopsOf struct {
	begun, dropped, acted int
	group                 bool   // the last one was for the group
	gone                  bool   // a SIGCONT has cancelled the last one
	acts                  func() // may be nil
}

func (s *stopsOf) pend() stopper { s.begun, s.gone = s.begun+1, false; return s }

func (s *stopsOf) drop() { s.dropped++ }

func (s *stopsOf) again() {
	if s.gone {
		s.pend()
	}
}

func (s *stopsOf) act(group bool) (undo func()) {
	if s.gone {
		return nil
	}
	s.acted++
	if s.group = group; s.acts != nil {
		s.acts()
	}
	return func() {}
}

// runs returns a job whose command runs. Its stops are counted, and not carried out.
func runs(t *testing.T) (j *job, stops *stopsOf) {
	t.Helper()
	c := command(t, "sleep")
	c.Signals = make(chan os.Signal, 2)
	g, err := guard.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Dismiss)
	stops = &stopsOf{}
	j = &job{Command: c, pid: sleeper(t), statuses: make(chan syscall.WaitStatus, 1), deadline: deadline{guard: g},
		suspension: suspension{pend: stops.pend}}
	j.begin()
	return j, stops
}

// suspended returns a job whose command has stopped, and which is about to stop this process.
func suspended(t *testing.T) (j *job, stops *stopsOf) {
	t.Helper()
	j, stops = runs(t)
	j.asked = time.Now().Add(time.Hour) // this machine may stand still
	_ = syscall.Kill(j.pid, syscall.SIGTSTP)
	j.changed(waitFor(t, j.pid, "a key", syscall.WaitStatus.Stopped))
	if !j.halting {
		t.Fatal("this process does not stop")
	}
	return j, stops
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
		j, stops := suspended(t)
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
		if j.halted || j.halting || j.settle != nil || j.resume != nil || stops.acted != 0 {
			t.Errorf("%s: the command counts as stopped: %v; %+v", when, j.halted, *stops)
		}
	}
}

// TestStopWithNews: a signal that was not received yet, or a machine that stood still, delays a stop.
func TestStopWithNews(t *testing.T) {
	j, stops := suspended(t)
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
	if !j.halting || j.settle == nil || stops.acted != 0 {
		t.Error("a signal that came while the store was being paused does not delay a stop")
	}
	<-j.Signals
	j.storePaused(j.pauses(t))
	if stops.acted != 1 || j.resume == nil {
		t.Errorf("stopped %d times", stops.acted)
	}
}

// TestStopOfABusyStore: a store that cannot be paused delays a stop, and does not prevent it. A store that
// was paused is not paused any more after the stop.
func TestStopOfABusyStore(t *testing.T) {
	j, stops := suspended(t)
	j.Pause = func(context.Context) (func(), error) { return nil, context.DeadlineExceeded }
	for tries := 1; stops.acted == 0; tries++ {
		if j.storePaused(j.pauses(t)); tries > pauseTries {
			t.Fatal("it never stops")
		}
		if tries < pauseTries && stops.acted != 0 {
			t.Errorf("stopped at try %d", tries)
		}
	}
	j, stops = suspended(t)
	pauses := 0
	j.Pause = func(context.Context) (func(), error) {
		pauses++
		return func() { pauses-- }, nil
	}
	p := j.pauses(t)
	stops.acts = func() {
		if pauses != 1 {
			t.Error("the store is not paused")
		}
	}
	if j.storePaused(p); stops.acted != 1 || pauses != 0 {
		t.Errorf("stopped %d times; paused after that: %d times", stops.acted, pauses)
	}
	j, stops = suspended(t)
	j.Pause = func(context.Context) (func(), error) { return func() { pauses-- }, nil }
	pauses = 1
	p = j.pauses(t)
	j.pass(syscall.SIGCONT)
	if j.storePaused(p); stops.acted != 0 || pauses != 0 {
		t.Errorf("continued while the store was being paused: stopped %d times; still paused: %d", stops.acted, pauses)
	}
}

// TestStopAnew: a SIGTSTP comes while a stop settles, or while the store is being paused for that. A SIGCONT
// before it may have cancelled the first stop, and was dropped. The new one settles from the beginning.
func TestStopAnew(t *testing.T) {
	for _, when := range []string{"while it settles", "while the store is being paused"} {
		j, stops := suspended(t)
		j.fires()
		var p paused
		if when != "while it settles" {
			j.fires()
			p = <-j.pausing
		}
		stops.gone = true
		j.pass(syscall.SIGTSTP)
		if p.resume != nil {
			first := j.pausing
			j.fires()
			if j.fires(); j.pausing != first {
				t.Errorf("%s: the store is being paused twice", when)
			}
			j.storePaused(p)
			j.settleAgain()
		}
		if stops.begun != 2 || stops.acted != 0 {
			t.Errorf("%s: %+v", when, *stops)
		}
		if j.storePaused(j.pauses(t)); stops.acted != 1 || stops.group {
			t.Errorf("%s: %+v after it has settled", when, *stops)
		}
	}
}

// TestStopCancelledAtTheLastMoment: a SIGCONT and the next SIGTSTP come after the last look at the signals. The
// first stop does not act, and the next one is a stop of its own.
func TestStopCancelledAtTheLastMoment(t *testing.T) {
	j, stops := suspended(t)
	stops.gone = true
	if j.storePaused(j.pauses(t)); j.resume != nil || j.halting {
		t.Error("a stop that did not act counts as one")
	}
	j.pass(syscall.SIGTSTP)
	if j.storePaused(j.pauses(t)); stops.acted != 1 || j.resume == nil {
		t.Errorf("%+v after the next stop", *stops)
	}
}

// TestStopOfABusyMachine: settle is never in time. The stop takes effect all the same.
func TestStopOfABusyMachine(t *testing.T) {
	j, stops := suspended(t)
	for tries := 0; j.pausing == nil; tries++ {
		if tries > lateTimes {
			t.Fatal("it never stops")
		}
		j.due = guard.Now() - time.Hour
		j.noNews()
	}
	if j.storePaused(<-j.pausing); stops.acted != 1 {
		t.Errorf("stopped %d times", stops.acted)
	}
}

// TestEndBesideAStop: the command ends, or must end, when its stop settles. This process does not stop.
// Nothing stays paused when Run returns.
func TestEndBesideAStop(t *testing.T) {
	j, stops := suspended(t)
	resumed := make(chan struct{})
	j.Pause = func(context.Context) (func(), error) { return func() { close(resumed) }, nil }
	j.fires()
	j.fires()
	j.changed(0) // it has ended
	if j.halting {
		t.Errorf("after its end: %+v", *stops)
	}
	j.over()
	<-resumed

	j, stops = suspended(t)
	j.Ending = func(string, time.Duration) {}
	j.stop("the lock is lost")
	if j.halting {
		t.Errorf("when it must end: %+v", *stops)
	}
	if j.pass(syscall.SIGTSTP); j.halting {
		t.Error("this process stops while it ends its command")
	}
}

// TestStoppedLongAfterItWasAsked: a command that ignored a SIGTSTP is stopped by a debugger much later.
// Without a terminal this process does not stop then: nobody would continue it.
func TestStoppedLongAfterItWasAsked(t *testing.T) {
	j, _ := runs(t)
	j.asked = time.Now().Add(-time.Hour)
	_ = syscall.Kill(j.pid, syscall.SIGSTOP)
	if j.changed(waitFor(t, j.pid, "a debugger", syscall.WaitStatus.Stopped)); j.halting {
		t.Error("this process stops")
	}
}

// TestEndOfAStoppedCommand: the command was stopped by STOP, and this process was not. A signal that asks the
// command to end continues it. It would hold its lock for ever.
func TestEndOfAStoppedCommand(t *testing.T) {
	t.Chdir(t.TempDir()) // QUIT may leave a dump there
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			continue
		}
		j, _ := runs(t)
		_ = syscall.Kill(j.pid, syscall.SIGSTOP)
		j.changed(waitFor(t, j.pid, "STOP", syscall.WaitStatus.Stopped))
		late := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(j.pid, syscall.SIGKILL) })
		j.pass(s)
		ends := func(ws syscall.WaitStatus) bool { return ws.Continued() || ws.Signaled() && ws.Signal() == s }
		waitFor(t, j.pid, s.String(), ends)
		late.Stop()
	}
}

// TestEndDuringAStop: this process is about to stop beside a stopped command, which a signal then asks to end. The
// command goes on, so this process does not stop.
func TestEndDuringAStop(t *testing.T) {
	j, stops := suspended(t)
	p := j.pauses(t)
	j.pass(syscall.SIGTERM)
	if j.storePaused(p); stops.acted != 0 {
		t.Error("this process stops")
	}
}

// TestRevokedWhileStopped: the command is stopped, and holdfast is not. The signal of a revocation reaches it.
func TestRevokedWhileStopped(t *testing.T) {
	c := command(t, "sh", "-c", "kill -STOP $$; exit 3")
	revoked := make(chan struct{})
	c.Signals, c.Revoked, c.Ask, c.Limit = make(chan os.Signal, 8), revoked, syscall.SIGTERM, time.Minute
	time.AfterFunc(300*time.Millisecond, func() { close(revoked) })
	late := time.AfterFunc(20*time.Second, func() { c.Signals <- syscall.SIGTERM })
	r, err := Run(c)
	if !late.Stop() || err != nil || !r.Revoked {
		t.Errorf("%+v, %v: only a signal to this process has ended the command", r, err)
	}
}
