//go:build unix

package guard

import (
	"encoding/binary"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The values of argv[0]. They differ from the name of the program, so that a kill by name does not
// hit both.
const (
	guardName    = "lock-guard"
	launcherName = "lock-launcher"
)

// The descriptors of a launcher, besides those of the command.
const (
	groupFD  = 3 // the guard's pipe
	statusFD = 4 // gets the number of an error; exec closes it
)

// tooLate is the number that a launcher reports for ErrLate. The system does not use it.
const tooLate = syscall.Errno(0xffff)

func init() {
	switch {
	case len(os.Args) == 1 && os.Args[0] == guardName:
		signal.Ignore() // all: a shutdown signals every process, and the guard must end last
		watch()
		os.Exit(0)
	case len(os.Args) > 4 && os.Args[0] == launcherName:
		runLauncher(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
		os.Exit(1)
	}
}

// orders are one message to a guard. A zero field leaves the previous value.
type orders struct {
	group    int           // the group to guard
	ask, end time.Duration // when to send it TERM, and KILL
	keep     time.Duration // how long to keep the files if the group does not end
}

// size is the size of orders in a pipe, which takes all of it or nothing.
const size = 32

func (o orders) write(fd int) error {
	b := o.append(make([]byte, 0, size))
	for {
		if _, err := syscall.Write(fd, b); err != syscall.EINTR {
			return err
		}
	}
}

func (o orders) append(b []byte) []byte {
	for _, n := range []int64{int64(o.group), int64(o.ask), int64(o.end), int64(o.keep)} {
		b = binary.NativeEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// read updates o with the later orders in b.
func (o *orders) read(b []byte) {
	at := func(i int) int64 { return int64(binary.NativeEndian.Uint64(b[8*i:])) }
	if n := at(0); n != 0 {
		o.group = int(n)
	}
	if n := at(1); n != 0 {
		o.ask = time.Duration(n)
	}
	if n := at(2); n != 0 {
		o.end = time.Duration(n)
	}
	if n := at(3); n != 0 {
		o.keep = time.Duration(n)
	}
}

// watch does the guard's work on standard input.
func watch() {
	const in = 0
	o := orders{ask: Never, end: Never}
	timer := newAlarm()
	var unread []byte
	for {
		due := Never
		if o.group != 0 {
			due = min(o.ask, o.end)
		}
		timeout := timer.set(due)
		fds := []unix.PollFd{{Fd: in, Events: unix.POLLIN}, {Fd: int32(timer), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, timeout); err != nil && err != unix.EINTR {
			return
		}
		// Read the pipe before acting: its messages may extend the time.
		if fds[0].Revents != 0 {
			var buf [64 * size]byte
			n, err := syscall.Read(in, buf[:])
			switch {
			case err == syscall.EINTR:
				continue
			case err != nil || n == 0: // the other process has ended
				kill(o.group, o.keep)
				return
			}
			for unread = append(unread, buf[:n]...); len(unread) >= size; unread = unread[size:] {
				o.read(unread)
			}
			continue
		}
		now := Now()
		switch {
		case o.group == 0:
		case now >= o.end:
			o.ask, o.end = Never, Never
			kill(o.group, 0)
		case now >= o.ask:
			o.ask = Never
			_ = syscall.Kill(-o.group, syscall.SIGTERM)
			_ = syscall.Kill(-o.group, syscall.SIGCONT) // a stopped process first takes TERM
		}
	}
}

// kill kills a group. It returns when the group has ended; or after killTime, but not before the time keep: some
// processes do not end at once. Until then the guard keeps the files that Start got.
func kill(group int, keep time.Duration) {
	if group == 0 {
		return // nothing was launched
	}
	// One KILL reaches all members, forks in progress included. It is repeated in case a member
	// could not be signalled at first.
	for begin, pause := Now(), time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		_ = syscall.Kill(-group, syscall.SIGKILL)
		if now := Now(); !alive(group) || now >= begin+killTime && now >= keep {
			return
		}
		time.Sleep(pause)
	}
}

var alive = Alive // replaced by tests

// killTime is how long a guard tries to kill a group, at least.
const killTime = time.Second

// pollTimeout returns how many milliseconds to wait for the time at: at most a second, because the
// timers of the system may stop while the machine sleeps.
func pollTimeout(at time.Duration) int {
	return int(max(0, min(at-Now()+time.Millisecond, time.Second)) / time.Millisecond)
}

// runLauncher does the launcher's work. It returns only on failure. A signal that has come since the fork
// stops or ends it when the guard knows the group.
func runLauncher(deadline, mask, path string, args []string) {
	syscall.CloseOnExec(groupFD)
	syscall.CloseOnExec(statusFD)
	err := orders{group: os.Getpid()}.write(groupFD)
	if err == syscall.EPIPE { // a signal has ended the guard; the next one gets the group by its first orders
		err = nil
	}
	takeSignals(mask)
	if err == nil {
		if at, _ := strconv.ParseInt(deadline, 10, 64); Now() >= time.Duration(at) {
			err = tooLate
		} else {
			err = syscall.Exec(path, args, os.Environ())
		}
	}
	errno, _ := err.(syscall.Errno)
	_, _ = syscall.Write(statusFD, binary.NativeEndian.AppendUint32(nil, uint32(errno)))
}
