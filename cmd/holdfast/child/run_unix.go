//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

const (
	noticeAfter = 2 * time.Second        // the leader has ended: until Notice reports other members
	killLimit   = 10 * time.Second       // after KILL: until Run gives up or reports that it waits
	firstLook   = time.Millisecond       // between checks of a group without its leader; doubles
	lastLook    = 200 * time.Millisecond // the longest time between checks
)

// Signals returns the signals that end or inform a program. A program should catch them before it
// runs a command, and pass them on. HUP and INT are left out if they are ignored already, as under
// nohup, and stay ignored. Package runtime loses that of other signals.
func Signals() []os.Signal {
	var list []os.Signal
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGWINCH,
	} {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// Asks returns the signals that may ask a command to release its lock, by name.
func Asks() map[string]syscall.Signal {
	return map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	}
}

// Die ends this process with a signal. It returns if that fails.
func Die(s syscall.Signal) {
	signal.Reset(s)
	if syscall.Kill(os.Getpid(), s) == nil {
		time.Sleep(time.Second) // the signal may take a moment to arrive
	}
}

// job is a running command. Only the goroutine of Run uses it.
type job struct {
	*Command
	pid      int                     // of the command, and of its group
	statuses chan syscall.WaitStatus // of the command
	term     *terminal
	result   Result
	ended    bool // the command itself, but maybe not its group

	halted  bool             // the command is stopped
	foreign bool             // this user may not signal the group, and Notice has reported that
	giveUp  <-chan time.Time // set when the group was killed
	look    <-chan time.Time // set while members are left after the command
	pause   time.Duration    // until the next look
	notice  <-chan time.Time // set until Notice reports members that are left
	pending <-chan struct{}  // Lost, until it is closed
	revoked <-chan struct{}  // Revoked, until it is closed

	deadline
	suspension
}

// Run runs the command and returns when its group has ended. The error is a *StartError; then no
// command has run.
func Run(c *Command) (Result, error) {
	g, err := guard.Start(c.Presence)
	if err != nil {
		return Result{}, &StartError{c.Path, err}
	}
	j := &job{Command: c, pending: c.Lost, revoked: c.Revoked, deadline: deadline{guard: g},
		suspension: suspension{pend: pend}}
	defer func() {
		if j.result.Stuck { // the lock must last as long as its lease
			g.Abandon()
		} else {
			g.Dismiss()
		}
	}()
	defer keepTTOU()()
	defer j.over()
	catchStops(j.Signals)
	j.prepare()
	if j.term = openTerminal(); j.term != nil {
		defer j.term.close()
	}
	j.begin()
	j.statuses = make(chan syscall.WaitStatus)
	launched := make(chan launch)
	go supervise(c, g, launched, j.statuses)
	l := <-launched
	if l.err != nil {
		return Result{}, &StartError{c.Path, l.err}
	}
	j.pid = l.pid
	// The child already has its own signal actions, and does not inherit this one.
	signal.Ignore(syscall.SIGTTOU)
	j.term.lend(j.pid)
	if err := j.starting(l, j.statuses); err != nil {
		j.term.reclaim(j.pid)
		if errors.Is(err, guard.ErrLate) {
			c.Ending("the command has not begun", 0)
			return Result{Lost: true}, nil
		}
		return Result{}, &StartError{c.Path, err}
	}
	for {
		select {
		case ws := <-j.statuses:
			j.changed(ws)
		case s := <-c.Signals:
			j.pass(s.(syscall.Signal))
		case <-j.pending:
			j.stop("the lock is lost")
		case <-j.revoked:
			if j.revoked = nil; c.Ask != 0 {
				j.result.Revoked = true
				j.asks(c.Ask)
			}
		case <-j.next:
			j.watch()
		case <-j.settle:
			j.noNews()
		case p := <-j.pausing:
			j.storePaused(p)
		case <-j.resume:
			j.notStopped()
		case <-j.notice:
			j.notice = nil
			c.Notice(
				"the command has ended, but processes that it started are still running in its group; keeping the lock until they end")
		case <-j.giveUp:
			if j.Left() <= 0 {
				c.Notice("processes of the command did not end when they were killed; leaving them")
				j.result.Stuck = true
				return j.result, nil
			}
			j.readLeft()
			j.instruct()
			c.Notice("processes of the command were killed but have not ended; keeping the lock until they end")
			j.giveUp = time.After(killLimit)
		case <-j.look:
			j.look = nil
		}
		if j.ended && j.look == nil {
			if !guard.Alive(j.pid) {
				j.term.reclaim(j.pid)
				return j.result, nil
			}
			j.pause = min(max(2*j.pause, firstLook), lastLook)
			j.look = time.After(j.pause)
		}
	}
}

// launch is the result of a start.
type launch struct {
	pid     int
	started func() error // waits until the process executes the command
	done    func() bool  // reports whether that is so, or whether it has failed
	err     error
}

// supervise starts the command and reports each change of its state. Linux kills the command when
// the thread that started it ends, so this goroutine keeps its thread until the command has ended.
func supervise(c *Command, g *guard.Guard, launched chan<- launch, statuses chan<- syscall.WaitStatus) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := g.Launch(c.Path, c.Args, c.Env, ownGroup())
	if err != nil {
		launched <- launch{err: err}
		return
	}
	launched <- launch{pid: l.PID, started: l.Started, done: l.Done}
	for {
		var ws syscall.WaitStatus
		if _, werr := syscall.Wait4(l.PID, &ws, syscall.WUNTRACED|syscall.WCONTINUED, nil); werr == syscall.EINTR {
			continue
		} else if werr != nil { // the process has ended, and other code has waited for it
			ws = 0
		}
		statuses <- ws
		if ws.Exited() || ws.Signaled() {
			return
		}
	}
}

// starting waits until the command has begun, or has ended. A key may stop the launcher before it
// executes the command. Then the launcher goes on, and the command stops in its place. A command that
// has begun may stop itself at once; it stays stopped.
func (j *job) starting(l launch, statuses <-chan syscall.WaitStatus) error {
	began := make(chan error, 1)
	go func() { began <- l.started() }()
	var stop syscall.Signal
	ended := func(ws syscall.WaitStatus) bool {
		if ws.Stopped() {
			stop = ws.StopSignal()
			j.signal(syscall.SIGCONT)
		}
		return ws.Exited() || ws.Signaled()
	}
	for {
		select {
		case ws := <-statuses:
			itself := ws.Stopped() && l.done()
			if !itself && !ended(ws) {
				continue
			}
			err := <-began
			switch {
			case itself && err != nil: // the launcher was stopped and continued before it failed
				for !ended(<-statuses) {
				}
				return err
			case err != nil:
				return err
			}
			j.changed(ws)
			if j.ended {
				j.look = time.After(0)
			}
			return nil
		case err := <-began:
			switch {
			case err != nil:
				for !ended(<-statuses) {
				}
			case stop != 0:
				j.signal(stop)
			}
			return err
		}
	}
}

// signal sends s to the group, or to the command if it has left the group.
func (j *job) signal(s syscall.Signal) {
	switch err := syscall.Kill(-j.pid, s); {
	case errors.Is(err, syscall.ESRCH) && !j.ended:
		_ = syscall.Kill(j.pid, s)
	case errors.Is(err, syscall.EPERM) && !j.foreign:
		j.foreign = true
		j.Notice("this user may not signal the processes of the command; waiting until they end by themselves")
	}
}

// changed handles a new state of the command.
func (j *job) changed(ws syscall.WaitStatus) {
	dropped := !ws.Stopped() && j.dropStop()
	switch {
	case ws.Stopped():
		j.halted, j.held = true, ws.StopSignal() == syscall.SIGSTOP
		j.stopped(ws.StopSignal())
	case ws.Continued():
		if j.halted = false; dropped {
			j.term.lend(j.pid)
		}
	case ws.Signaled():
		j.ended, j.result.Signal = true, ws.Signal()
	default:
		j.ended, j.result.Code = true, ws.ExitStatus()
	}
	if !j.ended {
		return
	}
	if !j.ending {
		j.notice = time.After(noticeAfter)
	}
	if guard.Now() >= j.guardActs {
		j.stop("this process was stopped for too long")
	}
	if s := j.result.Signal; s == syscall.SIGINT || s == syscall.SIGQUIT {
		hit := j.term.passInterrupt(j.pid, s)
		j.result.Interrupted = hit && s == syscall.SIGINT // by QUIT, a Go program dumps its stacks
	}
}

// pass passes on a signal that this process got.
func (j *job) pass(s syscall.Signal) {
	switch s {
	case syscall.SIGCONT:
		running := j.resume == nil
		if j.goOn(); running {
			j.order.cancels() // now: goOn may take longer than signals that come together
		}
	case syscall.SIGTSTP:
		if j.order.cancelled() {
			return
		}
		j.signal(s)
		if j.asked = time.Now(); j.halted && !j.ending {
			j.suspend()
		}
	default:
		if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT {
			j.result.Asked = s
		}
		j.asks(s)
	}
}

// asks sends s to the group. If that asks it to end, the group is continued: a stopped process takes s only then.
func (j *job) asks(s syscall.Signal) {
	j.signal(s)
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP:
		if j.dropStop() { // this process must not stop beside a command that goes on
			j.term.lend(j.pid)
		}
		j.signal(syscall.SIGCONT)
	}
}
