//go:build unix

// Package guard ends a process group in time, even if the process that started it is killed or
// stopped.
//
// SIGKILL leaves a process no time to end its children, and a stopped process cannot end them when
// it should. So the process starts its own executable again as a guard, in a session that no
// terminal and no job control reaches. A pipe connects the two. The guard reads from it which group
// to guard, and until when the group may run. When that time comes, or the pipe closes, it kills
// the group. A process that ends normally kills the guard first.
//
// All times are readings of one clock, Now. So a message that stays in the pipe while a process is
// stopped extends no time.
//
// The guard must know the group before a member can start another process, or a kill at that moment
// would leave that process behind. So a launcher starts the command. It is the same executable
// again: it writes its process ID into the pipe and then executes the command.
//
// A program that imports this package becomes a guard or launcher if argv[0] is the name of one.
// This happens before most other packages are initialised, and takes about a millisecond.
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

	"golang.org/x/sys/unix"
)

// Never is later than all readings of Now.
const Never = time.Duration(math.MaxInt64)

// ErrLate means that the time of a command was over before it could begin.
var ErrLate = errors.New("the time of the command was over before it could begin")

// Guard is the connection to a guard. If the guard is killed or stopped, another one replaces it.
// Its methods may be called concurrently.
type Guard struct {
	exe       string
	keeps     []*os.File    // that the guard keeps open, too
	unwatched chan struct{} // closed when replaceEnded has returned
	mu        sync.Mutex
	pipe      int
	pid       int
	orders    orders // the last ones
	dismissed bool
}

// Start starts a guard. It does not wait until the guard is ready: the pipe keeps messages even if
// this process is killed. The guard keeps the files open until it has ended the group, so their file
// locks last until then. The guard owns the files: Dismiss and Abandon close them.
func Start(keep []*os.File) (*Guard, error) {
	exe := "/proc/self/exe" // works even if the file was replaced or removed
	if _, err := os.Lstat(exe); err != nil {
		exe, _ = os.Executable() // without one, start fails
	}
	g := &Guard{exe: exe, keeps: keep, pipe: -1, orders: orders{ask: Never, end: Never}, unwatched: make(chan struct{})}
	if err := g.start(); err != nil {
		g.drop()
		return nil, fmt.Errorf("start a guard: %w", err)
	}
	go g.replaceEnded()
	return g, nil
}

// drop closes this process's files.
func (g *Guard) drop() {
	for _, f := range g.keeps {
		f.Close()
	}
}

// start starts a guard with the last orders, in place of one that has ended.
func (g *Guard) start() error {
	r, w, err := pipe()
	if err != nil {
		return err
	}
	defer syscall.Close(r)
	if err := g.orders.write(w); err != nil { // first, so that the guard always has orders
		syscall.Close(w)
		return err
	}
	files := []uintptr{uintptr(r), uintptr(r), uintptr(r)} // in place of /dev/null, which a chroot may lack
	for _, f := range g.keeps {
		files = append(files, f.Fd())
	}
	pid, err := forkExec(g.exe, func(string) []string { return []string{guardName} }, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: files,
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

// pipe returns a pipe that no child inherits. A write to it does not block: a stopped guard must
// not block this process.
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

// replaceEnded replaces a guard that ends, or stops, before Dismiss.
func (g *Guard) replaceEnded() {
	defer close(g.unwatched)
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

// Until sets until when the group may run. The guard sends it TERM at the time ask, unless that is
// Never, and KILL at the time end. If this process ends and its group does not, the guard keeps the files until keep.
func (g *Guard) Until(ask, end, keep time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.orders.ask, g.orders.end, g.orders.keep = ask, end, keep
	if g.orders.write(g.pipe) != nil { // this guard does not read; replace it
		_ = syscall.Kill(g.pid, syscall.SIGKILL)
	}
}

// Launch starts a command and has its group guarded; sys must make it the leader of a group. The
// command gets the descriptors 0, 1 and 2 of this process. When Launch returns, the process and its
// group exist.
func (g *Guard) Launch(path string, args, env []string, sys *syscall.SysProcAttr) (*Launched, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	end := strconv.FormatInt(int64(g.orders.end), 10)
	launcher := func(mask string) []string { return append([]string{launcherName, end, mask, path}, args...) }
	pid, err := forkExec(g.exe, launcher, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2, uintptr(g.pipe), w.Fd()}, Sys: sys,
	})
	if err != nil {
		r.Close()
		return nil, err
	}
	g.orders.group = pid
	return &Launched{pid, r}, nil
}

// Launched is a command whose process exists.
type Launched struct {
	PID    int      // of the command, and of its group
	status *os.File // gets the number of an error; its other end is closed when the launcher is done
}

// Started waits until the process executes the command. Its error is ErrLate if the end that Until set
// came first. It must be called once.
func (l *Launched) Started() error {
	defer l.status.Close()
	text, err := io.ReadAll(l.status)
	if err == nil && len(text) >= 4 {
		err = syscall.Errno(binary.NativeEndian.Uint32(text))
	}
	if err == tooLate {
		err = ErrLate
	}
	return err
}

// Done reports whether the launcher is done: the process executes the command, or has failed to. So a
// stop that is seen before is the launcher's.
func (l *Launched) Done() bool {
	done := true // unless the launcher has the other end; Started may have closed this one
	if conn, err := l.status.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			for _, err := unix.Poll(fds, 0); err == unix.EINTR; _, err = unix.Poll(fds, 0) {
			}
			done = fds[0].Revents&unix.POLLHUP != 0
		})
	}
	return done
}

// Abandon leaves the guard alone with the group, as the end of this process does. The guard kills the group, and
// keeps the files until that has ended, or until its time is over. Nothing may be called after that.
func (g *Guard) Abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dismissed = true
	syscall.Close(g.pipe)
	g.drop()
}

// Dismiss ends the guard, but not the group. Call it as soon as the group has ended, before the
// system reuses its number.
func (g *Guard) Dismiss() {
	g.mu.Lock()
	g.dismissed = true
	_ = syscall.Kill(g.pid, syscall.SIGKILL) // fails only if it has ended by itself
	g.mu.Unlock()
	<-g.unwatched
	syscall.Close(g.pipe)
	g.drop()
}
