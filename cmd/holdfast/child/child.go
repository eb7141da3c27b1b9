// Package child runs one command in a process group of its own and sees the whole group to
// its end.
//
// The command gets standard input, output and error as they are, no descriptor that this
// process opened, and the terminal if there is one. Signals are passed on to the group, and job control works
// as if the command had been started by the shell itself. When the lock that the command
// runs under is lost, or about to be, the group is asked to end and then made to, before
// anybody else can have the lock. Run returns when nobody is left in the group, so that
// whoever then gets the lock works alone. If this process is killed, so is the group, and if
// it is stopped, the group ends in time all the same; see package guard. Processes that leave
// the group, as daemons do, are not followed.
//
// On systems that are not Unix there are no process groups: only the command itself is
// waited for and ended.
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

// Command is what to run and how.
type Command struct {
	Path string   // of the executable, as Find returned it
	Args []string // with the name of the command first
	Env  []string

	// Signals has a buffer and was given to signal.Notify with what Signals returns. What
	// arrives is passed on. Run adds the signals of job control; what of these arrives when
	// no command runs is to be ignored.
	Signals chan os.Signal

	// Lost is closed when the command must end: TERM to the group, KILL after KillAfter
	// (0: at once), or when what Left said last is over, if that is sooner.
	Lost      <-chan struct{}
	KillAfter time.Duration

	// Left returns for how long the command may still run if nothing good is heard of its
	// lock, and 0 after Lost. When no more than KillAfter is left, the command must end, too:
	// so whatever it does about TERM, it has ended when the lock does.
	Left func() time.Duration

	// Limit, if it is positive, is how long the command may run. Then it must end.
	Limit time.Duration

	// Ending is told why the command is being made to end, and in what time it is killed. It
	// should not block.
	Ending func(why string, kill time.Duration)

	// Notice is told, in a sentence, what a user may wonder about. It should not block.
	Notice func(string)
}

// Result is how a command ended.
type Result struct {
	Code   int            // of the command, unless a signal ended it
	Signal syscall.Signal // that ended it, or 0
	Lost   bool           // it was made to end
	Stuck  bool           // processes of it were killed and have not ended; its lock is lost
	Asked  syscall.Signal // the last of INT, TERM and QUIT that was passed on, or 0

	// Interrupted: a key of the terminal sent Signal. A script that runs this process was
	// interrupted too, and goes on all the same unless this process dies of the signal; see Die.
	Interrupted bool
}

// ExitCode is what a shell would report: the code, or 128 and the signal's number.
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

// Error names the command and says what to do about it where that is known.
func (e *StartError) Error() string {
	if errors.Is(e.Err, syscall.ENOEXEC) {
		return fmt.Sprintf("cannot run %q: %v (a script needs a #! line)", e.Name, e.Err)
	}
	return fmt.Sprintf("cannot run %q: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// ExitCode is what a shell would report: 127 not found, 126 found but not runnable.
func (e *StartError) ExitCode() int {
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, fs.ErrNotExist) {
		return 127
	}
	return 126
}

// Find returns the path of the executable that name means, looked for as a shell does. The
// error is a *StartError.
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
