// Package child runs one command in a process group of its own, and ends the whole group.
//
// The command gets standard input, output and error as they are, and the terminal if there is one,
// but no descriptor that this process opened. Run passes signals on to the group. Job control works
// as if the shell had started the command itself. When the lock of the command is lost or about to
// be lost, Run ends the group with TERM and then KILL, before another client can get the lock. Run
// returns when no process is left in the group, so that the next holder works alone. If this
// process is killed, the group is killed. If this process is stopped, the group still ends in time;
// see package guard. Run does not follow processes that leave the group, as daemons do.
//
// Systems other than Unix have no process groups: Run waits for and ends only the command itself.
package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// TimeOver is the reason that Ending gets when a command has run for its Limit.
const TimeOver = "its time is over"

// NotRenewed is the reason that Ending gets when the lease is about to end.
const NotRenewed = "no renewal has reached the store in time"

// Command is what to run and how.
type Command struct {
	Path string   // of the executable, as Find returned it
	Args []string // with the name of the command first
	Env  []string

	// Presence are files that keep the lock while this process lives, however it ends. If it is killed, they
	// keep it until the group has been killed. Run closes them.
	Presence []*os.File

	// Pause pauses the store before a stop of this process; nil: there is nothing to pause.
	Pause Pause

	// Signals has a buffer, and the caller gave it to signal.Notify with the result of the function
	// Signals. Run passes its signals on to the group. Run also adds the signals of job control;
	// the caller ignores those that arrive when no command runs.
	Signals chan os.Signal

	// Lost is closed when the command must end: TERM to the group, and KILL after KillAfter (0: at
	// once), or when the time that Left returned last is over, if that is sooner.
	Lost      <-chan struct{}
	KillAfter time.Duration

	// Left returns for how long the command may still run if no renewal of its lock succeeds, and 0
	// after Lost. The command must also end when only KillAfter is left. So it has ended when the
	// lock does, even if it ignores TERM.
	Left func() time.Duration

	// Margin is for how much longer than Left the store may keep the lock.
	Margin time.Duration

	// Revoked is closed when somebody asks for the lock. The group then gets Ask, once, unless that is
	// 0. Systems other than Unix have no such signals: the command is ended.
	Revoked <-chan struct{}
	Ask     syscall.Signal

	// Limit, if it is positive, is how long the command may run before it must end.
	Limit time.Duration

	// Ending is called with the reason when Run begins to end the command; kill is the time until
	// KILL. It should not block.
	Ending func(why string, kill time.Duration)

	// Notice is called with a sentence for the user. It should not block.
	Notice func(string)
}

// Result is how a command ended.
type Result struct {
	Code    int            // of the command, unless a signal ended it
	Signal  syscall.Signal // the signal that ended it, or 0
	Lost    bool           // Run ended it
	Stuck   bool           // some of its processes were killed but have not ended; its lock is lost
	Revoked bool           // the command ended after Run had sent it Ask
	Asked   syscall.Signal // the last of INT, TERM and QUIT that Run passed on, or 0

	// Interrupted: a key of the terminal sent Signal. A script that runs this process gets the
	// signal too, but goes on unless this process dies of the signal; see Die.
	Interrupted bool
}

// ExitCode returns what a shell would report: the code, or 128 plus the number of the signal.
func (r Result) ExitCode() int {
	if r.Signal != 0 {
		return 128 + int(r.Signal)
	}
	return r.Code
}

// StartError is returned by Find and Run when the command cannot be run.
type StartError struct {
	Name string
	Err  error
}

// Error names the command and the cause, with a hint if the #! line is missing.
func (e *StartError) Error() string {
	if errors.Is(e.Err, syscall.ENOEXEC) {
		return fmt.Sprintf("cannot run %q: %v (a script needs a #! line)", e.Name, e.Err)
	}
	return fmt.Sprintf("cannot run %q: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// ExitCode returns what a shell would report: 127 for not found, 126 for found but not runnable.
func (e *StartError) ExitCode() int {
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, fs.ErrNotExist) {
		return 127
	}
	return 126
}

// Find returns the path of the executable name, searched as a shell does. The error is a
// *StartError.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if e := (*exec.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return "", &StartError{name, err}
}
