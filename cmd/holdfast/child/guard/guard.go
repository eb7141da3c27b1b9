//go:build unix

// Package guard ends a process group when the process that answers for it is gone.
//
// A process that is killed with SIGKILL cannot take its children with it. So it starts its
// own executable once more as a guard, in a session of its own that no terminal and no
// job control reaches. A pipe connects the two. The guard reads from it which group to
// guard; when the pipe closes, it kills the group. Who ends in order kills the guard first.
//
// The group must be known to the guard before anybody in it can start another process, or
// a kill at that moment would leave that one behind. So a command is not started directly,
// but by a launcher, the same executable again: it writes its own number into the pipe and
// then becomes the command.
//
// A program that imports this package turns into a guard or launcher when its name is that
// of one, before most other packages are initialised: each takes about a millisecond.
package guard

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// What argv[0] is. The names differ from the program's, so that killing by name does
// not hit both.
const (
	guardName    = "lock-guard"
	launcherName = "lock-launcher"
)

// The descriptors of a launcher beside the command's own.
const (
	groupFD  = 3 // the guard's pipe
	statusFD = 4 // closed by the exec, or gets the number of the error
)

func init() {
	switch {
	case len(os.Args) == 1 && os.Args[0] == guardName:
		signal.Ignore() // all of them: a shutdown signals everybody, and the guard is to be last
		watch()
		os.Exit(0)
	case len(os.Args) > 2 && os.Args[0] == launcherName:
		become(os.Args[1], os.Args[2:])
		os.Exit(1)
	}
}

// watch does the guard's work on standard input.
func watch() {
	text, _ := io.ReadAll(os.Stdin) // ends when the other process does
	if len(text) < 4 {
		return // nothing was launched
	}
	group := int(binary.NativeEndian.Uint32(text))
	// One KILL reaches everybody in the group, forks in progress included. It is
	// repeated in case a member could not be signalled at first.
	for range 100 {
		if syscall.Kill(-group, syscall.SIGKILL) == syscall.ESRCH {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// become does the launcher's work. It returns only if that failed.
func become(path string, args []string) {
	syscall.CloseOnExec(groupFD)
	syscall.CloseOnExec(statusFD)
	err := put(groupFD, os.Getpid())
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	errno, _ := err.(syscall.Errno)
	_ = put(statusFD, int(errno))
}

func put(fd, n int) error {
	_, err := syscall.Write(fd, binary.NativeEndian.AppendUint32(nil, uint32(n)))
	return err
}

// Guard is the connection to a guard.
type Guard struct {
	exe  string
	pipe *os.File
	pid  int
}

// Start starts a guard. It does not wait until the guard is ready: what is written to
// the pipe stays in it even if this process is killed.
func Start() (*Guard, error) {
	exe := "/proc/self/exe" // right even if the file was replaced or removed
	if _, err := os.Lstat(exe); err != nil {
		if exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	pid, err := syscall.ForkExec(exe, []string{guardName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: []uintptr{r.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("start a guard: %w", err)
	}
	return &Guard{exe, w, pid}, nil
}

// Launch starts a command as the leader of a group, as sys must say, and has the group
// guarded. The command gets the descriptors 0, 1 and 2 of this process. When Launch returns,
// the process and its group exist; started waits until it has become the command.
func (g *Guard) Launch(path string, args, env []string, sys *syscall.SysProcAttr) (pid int, started func() error, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer w.Close()
	pid, err = syscall.ForkExec(g.exe, append([]string{launcherName, path}, args...), &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2, g.pipe.Fd(), w.Fd()}, Sys: sys,
	})
	if err != nil {
		r.Close()
		return 0, nil, err
	}
	return pid, func() error {
		defer r.Close()
		text, err := io.ReadAll(r)
		if err == nil && len(text) >= 4 {
			err = syscall.Errno(binary.NativeEndian.Uint32(text))
		}
		return err
	}, nil
}

// Dismiss ends the guard and leaves the group alone. It is to be called as soon as
// the group has ended, before its number can be given to another.
func (g *Guard) Dismiss() {
	_ = syscall.Kill(g.pid, syscall.SIGKILL) // fails only if it has ended by itself
	for {
		if _, err := syscall.Wait4(g.pid, nil, 0, nil); err != syscall.EINTR {
			break
		}
	}
	g.pipe.Close()
}
