//go:build unix

package child

import (
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

const (
	stopTime   = 100 * time.Millisecond // see notStopped
	askedLimit = 5 * time.Second        // from a SIGTSTP until the command has stopped by it
	pauseTries = 20                     // at most, to pause the store before a stop
	lateTimes  = 50                     // at most, for which settle may be late: a busy machine must not prevent a stop
)

// suspension is the stop of this process that follows a stop of the command. The goroutine of Run goes
// on receiving signals and statuses meanwhile: they may show that the stop is not meant any more.
type suspension struct {
	held  bool      // the command was stopped by STOP, which holdfast does not undo before the command must end
	asked time.Time // when this process was asked to stop, until it has stopped

	pend    func() stopper   // begins with a stop
	ready   stopper          // a stop that has begun: see prepare
	halting bool             // this process is about to stop by it
	group   bool             // it is for the group of this process, too
	settle  <-chan time.Time // set with halting: see noNews
	pausing <-chan paused    // set while the store is being paused
	tries   int              // how often that has failed
	late    int              // how often settle was late

	resume <-chan time.Time // set while this process is stopping
	undo   func()           // catches SIGTSTP again; set with resume
	due    time.Duration    // when settle or resume fires
	timely bool             // it has been in time once
	order  order
}

// paused is the result of Pause.begin.
type paused struct {
	resume func()
	done   bool
}

// stopped handles a stop of the command. A shell with job control waits for this process, and must
// see it stop as well. Without a terminal nobody would continue this process, so it stops only if
// it was asked to.
func (j *job) stopped(by syscall.Signal) {
	switch {
	case (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && j.term.lend(j.pid):
		j.signal(syscall.SIGCONT) // the command needed the terminal, and now has it
	case j.ending: // the command must end, not stop
		j.signal(syscall.SIGCONT)
	case j.term != nil || j.wasAsked():
		j.suspend()
	}
}

// wasAsked reports whether somebody sent this process a SIGTSTP by which the command may have stopped
// now. A command may ignore it, and a debugger may stop that command much later.
func (j *job) wasAsked() bool { return !j.asked.IsZero() && time.Since(j.asked) < askedLimit }

// prepare begins with a stop before anybody asks for one. If it began later, it could drop the SIGCONT of
// somebody who asks for a stop and takes that back at once: see pend. A SIGCONT cancels the stop that is
// ready, and the next one begins. So a SIGCONT is lost only if it and a SIGTSTP before it come in the moment
// after another SIGCONT.
func (j *job) prepare() {
	if j.ready == nil {
		j.ready = j.pend()
	} else {
		j.ready.again()
	}
}

// suspend begins to stop this process until it is continued, and with it its group if the command has
// stopped by itself or by a key of the terminal: a script in that group waits for this process, and the
// shell above waits for the script. A stop that somebody sent to this process is for it alone; a terminal
// has sent it to the others, too.
//
// A SIGTSTP that comes while it settles begins the stop anew: a SIGCONT before it, which the system may
// have dropped, has cancelled the first one.
func (j *job) suspend() {
	switch {
	case j.resume != nil:
		return
	case j.halting:
		j.group = j.group && !j.wasAsked()
	default:
		j.term.reclaim(j.pid)
		j.group, j.tries, j.late = !j.wasAsked(), 0, 0
	}
	j.prepare()
	j.halting = true
	j.settleAgain()
}

// setSettle sets settle and due.
func (j *job) setSettle() {
	j.due, j.settle = guard.Now()+settled/2, time.After(settled/2)
}

// settleAgain sets settle for a stop that has to settle from the beginning.
func (j *job) settleAgain() {
	j.timely = false
	j.setSettle()
}

// noNews is called when settle fires: no event shows that no SIGCONT is on its way. This process goes
// on with its stop if settle has been in time twice. A machine that stood still may have news that no
// goroutine could receive.
func (j *job) noNews() {
	inTime := guard.Now()-j.due < settled/4
	if !inTime {
		j.late++
	}
	enough := inTime && j.timely || j.late > lateTimes
	switch {
	case j.news():
	case !enough || j.pausing != nil:
		j.timely = inTime
		j.setSettle()
	default:
		done := make(chan paused, 1)
		j.settle, j.pausing = nil, done
		go func() {
			resume, ok := j.Pause.begin()
			done <- paused{resume, ok || j.Pause == nil}
		}()
	}
}

// news reports whether something happened after the stop began. It handles a new state of the command,
// and leaves signals to Run. If the stop is still meant, it settles again.
func (j *job) news() (found bool) {
	select {
	case ws := <-j.statuses:
		j.changed(ws)
		found = true
	default:
		found = len(j.Signals) > 0
	}
	if found && j.halting {
		j.settleAgain()
	}
	return found
}

// storePaused stops this process. If the stop does not act, because nobody could continue this process,
// the command must not stay stopped either: see notStopped.
func (j *job) storePaused(p paused) {
	defer p.resume()
	j.pausing = nil
	if !j.halting || j.settle != nil || j.news() { // it was another stop, or may not be meant any more
		return
	}
	if j.tries++; !p.done && j.tries < pauseTries {
		j.settleAgain()
		return
	}
	ready := j.ready
	j.ready, j.halting, j.timely = nil, false, false
	if j.undo = ready.act(j.group); j.undo != nil {
		j.asked = time.Time{}
		j.setResume()
	}
}

// dropStop drops a stop that has not acted, and reports whether there was one.
func (j *job) dropStop() bool {
	was := j.halting
	j.halting, j.settle = false, nil
	return was
}

// endStop drops a stop that has not acted, and makes this process catch SIGTSTP again after one that has.
func (j *job) endStop() {
	j.dropStop()
	if j.resume != nil {
		j.undo()
		j.undo, j.resume = nil, nil
	}
}

// over ends the stop when Run returns.
func (j *job) over() {
	j.endStop()
	if j.ready != nil {
		j.ready.drop()
	}
	if j.pausing != nil {
		go func() { (<-j.pausing).resume() }()
	}
}

// setResume sets resume and due.
func (j *job) setResume() {
	j.due, j.resume = guard.Now()+stopTime, time.After(stopTime)
}

// notStopped is called when resume fires. If it fires late, this process was stopped and has just
// been continued: SIGCONT is on its way, and goOn must not be called before. A key may stop the command
// between two calls, and the second one would undo that. So this process goes on by itself only after
// resume has been in time twice.
func (j *job) notStopped() {
	inTime := guard.Now()-j.due < stopTime/2
	switch {
	case !inTime || !j.timely:
		j.timely = inTime
		j.setResume()
	case j.held:
		j.endStop()
		j.prepare()
	default:
		j.goOn()
	}
}

// goOn continues the command after this process has been continued.
func (j *job) goOn() {
	j.endStop()
	j.prepare()
	j.term.lend(j.pid)
	if j.watch(); j.ending {
		return
	}
	j.signal(syscall.SIGCONT)
	j.halted, j.asked = false, time.Time{}
}
