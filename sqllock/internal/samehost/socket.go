package samehost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

const (
	// MaxMessage is the length of the longest message, in bytes.
	MaxMessage = 4096

	// maxOthers bounds Others.
	maxOthers = 128

	// Pause is how often a Server with waiters looks at the SQL server for grants without a message.
	Pause = time.Second

	// fresh is how long a listing of the folder is used. coarse is the resolution of a folder's time: a
	// listing within that time may lack a file.
	fresh  = 5 * time.Millisecond
	coarse = 50 * time.Millisecond

	// retryAfter is the pause after an attempt to listen that failed.
	retryAfter = time.Minute
)

// Socket is what one Server sends and receives with. Its methods may be called concurrently.
type Socket struct {
	dir, kind, id string

	mu       sync.Mutex
	closed   bool
	bell     *host.Bell // nil: nobody has waited yet
	heard    func([]byte)
	look     func() (waiting bool)
	failed   time.Time // the last attempt to listen failed then
	armed    bool      // the bell's Read will end after Pause
	muted    bool
	notifier *host.Notifier
	wg       sync.WaitGroup
	looking  bool // a call of look runs

	listed  time.Time // when others was made
	changed time.Time // the folder's time then
	others  []string
}

// Dir returns the folder of this user's sockets.
func Dir() string { return filepath.Join(host.OwnDir(), fmt.Sprintf("holdfast-%d-sql", os.Geteuid())) }

// New returns the Socket of the Server with this ID. Only Servers of the same kind (of SQL server)
// know each other. heard is called with each message, and must not keep it. From Listen on, look is
// called every Pause for as long as it returns true. It may take long: messages arrive meanwhile.
func New(dir, kind, id string, heard func([]byte), look func() (waiting bool)) *Socket {
	s := &Socket{dir: dir, kind: kind + "-", id: id, heard: heard, look: look}
	s.closed = !host.Push || len(s.path(id)) > host.MaxPath
	return s
}

func (s *Socket) path(id string) string { return filepath.Join(s.dir, s.kind+id) }

// Listen is called when a request waits. It creates the socket, unless it exists.
func (s *Socket) Listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.bell == nil && time.Since(s.failed) < retryAfter {
		return
	}
	if s.bell == nil || !s.bell.Intact() {
		bell, err := s.create()
		if err != nil {
			s.failed = time.Now()
			s.arm() // somebody may have handed over to a socket whose file is gone
			return
		}
		if s.bell != nil {
			_ = s.bell.Drop()
		}
		s.bell, s.armed = bell, false
		s.wg.Go(func() { s.read(bell) })
	}
	s.arm()
}

// arm makes the reading goroutine look in a while. s.mu is locked.
func (s *Socket) arm() {
	if !s.armed && s.bell != nil {
		s.armed = s.bell.ReadUntil(time.Now().Add(Pause)) == nil
	}
}

func (s *Socket) create() (*host.Bell, error) {
	if err := host.PrivateDir(s.dir); err != nil {
		return nil, err
	}
	if kind, err := host.NetworkFS(s.dir); err != nil || kind != "" {
		return nil, fmt.Errorf("%s: file system %q: %w", s.dir, kind, errors.ErrUnsupported)
	}
	bell, err := host.Listen(s.path(s.id))
	if err == nil && s.bell == nil {
		s.sweep()
	}
	return bell, err
}

// sweep removes the files of processes that were killed.
func (s *Socket) sweep() {
	all, _ := os.ReadDir(s.dir)
	for _, e := range all {
		if path := filepath.Join(s.dir, e.Name()); e.Type()&os.ModeSocket != 0 && !host.Listens(path) {
			_ = os.Remove(path)
		}
	}
}

func (s *Socket) read(bell *host.Bell) {
	buf := make([]byte, MaxMessage)
	for {
		n, err := bell.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.lookAgain(bell)
		case err != nil:
			return
		default:
			s.mu.Lock()
			muted := s.muted
			s.mu.Unlock()
			if !muted {
				s.heard(buf[:n])
			}
		}
	}
}

// lookAgain begins a look when bell's Read has ended, unless one runs: then the next follows later.
func (s *Socket) lookAgain(bell *host.Bell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bell != bell {
		return
	}
	_ = bell.ReadUntil(time.Time{})
	s.armed = false
	if s.looking {
		s.arm()
		return
	}
	s.looking = true
	s.wg.Go(func() {
		waiting := s.look()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.looking = false; waiting {
			s.arm()
		}
	})
}

// Others returns the other Servers that listen on this host. It may lack some, and may have some that
// have just ended.
func (s *Socket) Others() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || time.Since(s.listed) < fresh {
		return s.others
	}
	now := time.Now()
	fi, err := os.Lstat(s.dir)
	if err != nil || host.IsPrivate(s.dir) != nil {
		s.listed, s.changed, s.others = now, time.Time{}, nil
		return nil
	}
	if at := fi.ModTime(); !at.Equal(s.changed) || s.listed.Sub(at) < coarse {
		all, _ := os.ReadDir(s.dir)
		var others []string // callers may have the last ones
		for _, e := range all {
			id, ok := strings.CutPrefix(e.Name(), s.kind)
			if ok && isID(id) && id != s.id && e.Type()&os.ModeSocket != 0 && len(others) < maxOthers {
				others = append(others, id)
			}
		}
		s.changed, s.others = at, slices.Clip(others)
	}
	s.listed = now
	return s.others
}

// isID reports whether a Server can have this ID. The IDs that Others returns go into statements, and
// a file may have any name.
func isID(id string) bool {
	return id != "" && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Send sends a message to a Server of this host, and reports whether its socket took it. It never
// waits.
func (s *Socket) Send(id string, msg []byte) bool {
	n := s.sender()
	if n == nil || !isID(id) {
		return false
	}
	err := n.Notify(s.path(id), msg)
	if errors.Is(err, host.ErrNobody) && host.IsPrivate(s.dir) == nil {
		_ = os.Remove(s.path(id)) // it was killed
	}
	return err == nil
}

// sender returns what sends, if the folder is this user's.
func (s *Socket) sender() *host.Notifier {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || host.IsPrivate(s.dir) != nil {
		return nil
	}
	if s.notifier == nil {
		s.notifier, _ = host.NewNotifier()
	}
	return s.notifier
}

// Close stops sending and listening, and removes the socket's file.
func (s *Socket) Close() error { return s.end((*host.Bell).Close) }

// Drop is Close without removing the file, as a killed process leaves it.
func (s *Socket) Drop() error { return s.end((*host.Bell).Drop) }

func (s *Socket) end(end func(*host.Bell) error) (err error) {
	s.mu.Lock()
	bell, notifier := s.bell, s.notifier
	s.closed, s.bell, s.notifier, s.others = true, nil, nil, nil
	s.mu.Unlock()
	if bell != nil {
		err = end(bell)
	}
	if notifier != nil {
		err = errors.Join(err, notifier.Close())
	}
	s.wg.Wait()
	return err
}

// Mute discards what arrives, as a network that loses everything, until it is called with false.
func (s *Socket) Mute(muted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = muted
}
