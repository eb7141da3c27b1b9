//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Push reports whether bells can wake waiters; otherwise waiters poll.
const Push = true

// MaxPath is the longest path of a socket that all systems allow.
const MaxPath = 103

// Bell is a datagram socket that wakes a process.
type Bell struct {
	path string
	conn *net.UnixConn
}

// Listen creates the socket at path, mode 0600. The path must not exist.
func Listen(path string) (*Bell, error) {
	// Set the mode before the path exists, since the path could lead to another file later. Only
	// Linux supports that; elsewhere the folder's mode keeps others out.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	conn, err := lc.ListenPacket(context.Background(), "unixgram", path)
	if err != nil {
		return nil, err
	}
	return &Bell{path, conn.(*net.UnixConn)}, nil
}

// Read waits for one datagram and copies it to p.
func (b *Bell) Read(p []byte) (int, error) { return b.conn.Read(p) }

// ReadUntil makes Read return os.ErrDeadlineExceeded at t; the zero time is never.
func (b *Bell) ReadUntil(t time.Time) error { return b.conn.SetReadDeadline(t) }

// Intact reports whether the socket's name still exists.
func (b *Bell) Intact() bool {
	fi, err := os.Lstat(b.path)
	return err == nil && fi.Mode()&os.ModeSocket != 0
}

// Close ends Read and removes the socket, unless something else is at its path.
func (b *Bell) Close() error {
	if !b.Intact() {
		return b.conn.Close()
	}
	return errors.Join(b.conn.Close(), ignoreMissing(os.Remove(b.path)))
}

// Drop ends Read and leaves the socket's name, as a killed process would.
func (b *Bell) Drop() error { return b.conn.Close() }

// Notifier sends to Bells. Its methods may be called concurrently.
type Notifier struct {
	mu sync.RWMutex
	fd int
}

// NewNotifier opens a socket to send from.
func NewNotifier() (*Notifier, error) {
	syscall.ForkLock.RLock() // not every system can set close-on-exec in the same call
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("socket: %w", err)
	}
	return &Notifier{fd: fd}, nil
}

// Notify sends msg and never waits. If the receiver's buffer is full, the message is lost and the
// error is not ErrNobody.
func (r *Notifier) Notify(path string, msg []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.fd < 0 {
		return net.ErrClosed
	}
	for {
		err := unix.Sendto(r.fd, msg, 0, &unix.SockaddrUnix{Name: path})
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
			return fmt.Errorf("%w: %w", ErrNobody, err)
		default:
			return err
		}
	}
}

// Close closes the socket.
func (r *Notifier) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return nil
	}
	fd := r.fd
	r.fd = -1
	return unix.Close(fd)
}

// Listens reports whether a process listens at path. It sends nothing. If it cannot tell, it returns
// true.
func Listens(path string) bool {
	n, err := NewNotifier()
	if err != nil {
		return true
	}
	defer n.Close()
	err = unix.Connect(n.fd, &unix.SockaddrUnix{Name: path})
	return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
