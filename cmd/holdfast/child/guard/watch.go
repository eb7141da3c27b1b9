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

// tooLate is the number that a launcher reports for ErrLate; no error of the system has it.
const tooLate = syscall.Errno(0xffff)

func init() {
	switch {
	case len(os.Args) == 1 && os.Args[0] == guardName:
		signal.Ignore() // all of them: a shutdown signals everybody, and the guard is to be last
		watch()
		os.Exit(0)
	case len(os.Args) > 3 && os.Args[0] == launcherName:
		become(os.Args[1], os.Args[2], os.Args[3:])
		os.Exit(1)
	}
}

// orders are what a guard does: one message in its pipe. A zero leaves what was there before.
type orders struct {
	group    int           // whom it guards
	ask, end time.Duration // when it asks the group to end, and kills it
}

// size is that of orders in a pipe, which takes them at once or not at all.
const size = 24

func (o orders) write(fd int) error {
	b := o.append(make([]byte, 0, size))
	for {
		if _, err := syscall.Write(fd, b); err != syscall.EINTR {
			return err
		}
	}
}

func (o orders) append(b []byte) []byte {
	for _, n := range []int64{int64(o.group), int64(o.ask), int64(o.end)} {
		b = binary.NativeEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// read takes over what b says, as later orders.
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
}

// watch does the guard's work on standard input.
func watch() {
	const in = 0
	o := orders{0, Never, Never}
	ring := newAlarm()
	var unread []byte
	for {
		due := Never
		if o.group != 0 {
			due = min(o.ask, o.end)
		}
		patience := ring.set(due)
		fds := []unix.PollFd{{Fd: in, Events: unix.POLLIN}, {Fd: int32(ring), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, patience); err != nil && err != unix.EINTR {
			return
		}
		// What the pipe has comes first: it may say that there is more time.
		if fds[0].Revents != 0 {
			var buf [64 * size]byte
			n, err := syscall.Read(in, buf[:])
			switch {
			case err == syscall.EINTR:
				continue
			case err != nil || n == 0: // the other process has ended
				end(o.group)
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
			end(o.group)
		case now >= o.ask:
			o.ask = Never
			_ = syscall.Kill(-o.group, syscall.SIGTERM)
			_ = syscall.Kill(-o.group, syscall.SIGCONT) // takes TERM before anything else
		}
	}
}

// end kills a group.
func end(group int) {
	if group == 0 {
		return // nothing was launched
	}
	// One KILL reaches everybody in the group, forks in progress included. It is
	// repeated in case a member could not be signalled at first.
	for range 100 {
		if syscall.Kill(-group, syscall.SIGKILL) == syscall.ESRCH {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// briefly is how many milliseconds to wait for the time at, a second at most: the timers of
// the system may stand still while the machine sleeps.
func briefly(at time.Duration) int {
	return int(max(0, min(at-Now()+time.Millisecond, time.Second)) / time.Millisecond)
}

// become does the launcher's work. It returns only if that failed.
func become(deadline, path string, args []string) {
	syscall.CloseOnExec(groupFD)
	syscall.CloseOnExec(statusFD)
	err := orders{group: os.Getpid()}.write(groupFD)
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
