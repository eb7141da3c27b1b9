//go:build unix

// Package guard ends a process group in time, whatever becomes of the process that answers
// for it.
//
// A process that is killed with SIGKILL cannot take its children with it, and one that is
// stopped cannot end them when it should. So it starts its own executable once more as a
// guard, in a session of its own that no terminal and no job control reaches. A pipe
// connects the two. The guard reads from it which group to guard, and until when the group
// may run. When the pipe closes, or that time has come, it kills the group. A process that
// ends in order kills the guard first.
//
// The times are readings of one clock, Now. So a message that lay in the pipe while a
// process was stopped extends nothing: it says what it said when it was written.
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
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Never is later than all readings of Now.
const Never = time.Duration(math.MaxInt64)

// ErrLate is returned for a command whose time was over before it could begin.
var ErrLate = errors.New("the time of the command was over before it could begin")

// Guard is the connection to a guard. If the guard is killed or stopped, another takes its
// place.
type Guard struct {
	exe       string
	minded    chan struct{} // closed when nobody minds the guard any more
	mu        sync.Mutex
	pipe      int
	pid       int
	orders    orders // as last given
	dismissed bool
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
	g := &Guard{exe: exe, pipe: -1, orders: orders{0, Never, Never}, minded: make(chan struct{})}
	if err := g.start(); err != nil {
		return nil, fmt.Errorf("start a guard: %w", err)
	}
	go g.mind()
	return g, nil
}

// start starts a guard with the orders of now, in place of one that has ended.
func (g *Guard) start() error {
	r, w, err := pipe()
	if err != nil {
		return err
	}
	defer syscall.Close(r)
	if err := g.orders.write(w); err != nil { // before the guard exists: it is never without orders
		syscall.Close(w)
		return err
	}
	pid, err := syscall.ForkExec(g.exe, []string{guardName}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: []uintptr{uintptr(r)},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		syscall.Close(w)
		return err
	}
	if g.pipe >= 0 {
		syscall.Close(g.pipe)
	}
	g.pipe, g.pid = w, pid
	return nil
}

// pipe returns a pipe that nobody inherits. A write to it does not wait: a guard that is
// stopped must not stop this process.
func pipe() (r, w int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		return 0, 0, err
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	return p[0], p[1], syscall.SetNonblock(p[1], true)
}

// mind replaces a guard that ends, or stops, before it is dismissed.
func (g *Guard) mind() {
	defer close(g.minded)
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		pid := g.pid
		g.mu.Unlock()
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(pid, &ws, syscall.WUNTRACED, nil)
		g.mu.Lock()
		switch {
		case err == syscall.EINTR:
		case err == nil && ws.Stopped():
			_ = syscall.Kill(pid, syscall.SIGKILL)
		default:
			for !g.dismissed && g.start() != nil { // too many processes, perhaps
				g.mu.Unlock()
				time.Sleep(50 * time.Millisecond)
				g.mu.Lock()
			}
			if g.dismissed {
				return
			}
		}
	}
}

// Until says until when the group may run: the guard asks it to end at the time ask, unless
// that is Never, and kills it at the time end.
func (g *Guard) Until(ask, end time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.orders.ask, g.orders.end = ask, end
	if g.orders.write(g.pipe) != nil { // it does not read: another one will
		_ = syscall.Kill(g.pid, syscall.SIGKILL)
	}
}

// Launch starts a command as the leader of a group, as sys must say, and has the group
// guarded. The command gets the descriptors 0, 1 and 2 of this process. When Launch returns,
// the process and its group exist; started waits until it has become the command. ErrLate:
// the end that Until named has come before that.
func (g *Guard) Launch(path string, args, env []string, sys *syscall.SysProcAttr) (pid int, started func() error, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer w.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	end := strconv.FormatInt(int64(g.orders.end), 10)
	pid, err = syscall.ForkExec(g.exe, append([]string{launcherName, end, path}, args...), &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2, uintptr(g.pipe), w.Fd()}, Sys: sys,
	})
	if err != nil {
		r.Close()
		return 0, nil, err
	}
	g.orders.group = pid
	return pid, func() error {
		defer r.Close()
		text, err := io.ReadAll(r)
		if err == nil && len(text) >= 4 {
			err = syscall.Errno(binary.NativeEndian.Uint32(text))
		}
		if err == tooLate {
			err = ErrLate
		}
		return err
	}, nil
}

// Dismiss ends the guard and leaves the group alone. It is to be called as soon as
// the group has ended, before its number can be given to another.
func (g *Guard) Dismiss() {
	g.mu.Lock()
	g.dismissed = true
	_ = syscall.Kill(g.pid, syscall.SIGKILL) // fails only if it has ended by itself
	g.mu.Unlock()
	<-g.minded
	syscall.Close(g.pipe)
}
