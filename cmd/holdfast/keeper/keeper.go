// Package keeper connects the keeper of a lock with the commands that ask about it. A keeper is a
// process in the background that holds one lock for several commands, such as the steps of a CI job.
//
// A keeper listens on a Unix socket in a folder that only its user may enter. Both sides check that
// the other one is a process of the same user. The path of the socket is the handle of the hold: it
// is no secret, and of no use to other users.
//
// Every socket has its name only once its keeper listens. So a socket that refuses connections
// belongs to a keeper that has been killed.
package keeper

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Op is what a command asks of a keeper.
type Op string

// The operations.
const (
	Check   Op = "check"   // whether the lock is held
	Release Op = "release" // to release the lock, or to end the offer of it
	HandOff Op = "handoff" // to offer the lock to whoever has the ticket in the answer
)

// State is what has become of the lock.
type State string

// The states.
const (
	Held     State = "held"
	Offered  State = "offered"  // to whoever has the ticket
	Passed   State = "passed"   // the offer is over: the lock was adopted, or has ended since
	Released State = "released" // by this request
	Unsure   State = "unsure"   // released, but the store has not confirmed that
	Ended    State = "ended"    // the lock was lost, or its time was over
)

// Answer is what a keeper answers.
type Answer struct {
	State  State         `json:"state"`
	Name   string        `json:"name"`
	Token  uint64        `json:"token,string"`
	Store  string        `json:"store"`           // its URL without passwords
	While  int           `json:"while,omitempty"` // the process whose end ends the hold
	Left   time.Duration `json:"left,omitempty"`  // for how long the lock is held at least
	Why    string        `json:"why,omitempty"`   // of Ended and Unsure
	Ticket string        `json:"ticket,omitempty"`
	Asked  string        `json:"asked,omitempty"` // who has asked for the lock, and why
}

// Errors of Ask.
var (
	ErrGone    = errors.New("the keeper has ended")
	ErrForeign = errors.New("the keeper belongs to another user")
	ErrSilent  = errors.New("the keeper does not answer")
)

// Silence is the ErrSilent of a keeper that takes requests.
type Silence struct {
	PID   int           // its process; 0: the system does not say
	After time.Duration // how long it had to answer
	Runs  bool          // it has received the request, and waits for the store; else it may be stopped
}

// Error returns a text without advice.
func (s *Silence) Error() string {
	process := "the keeper"
	if s.PID > 0 {
		process += fmt.Sprintf(" (process %d)", s.PID)
	}
	if s.Runs {
		return fmt.Sprintf("%s waits for the store, and has not answered within %v", process, s.After)
	}
	return fmt.Sprintf("%s has not answered within %v", process, s.After)
}

// Is reports whether target is ErrSilent.
func (s *Silence) Is(target error) bool { return target == ErrSilent }

// Limits of one connection.
const (
	maxText     = 64 << 10         // bytes
	endLimit    = 30 * time.Second // for the answer of Release, which waits for the store
	dialLimit   = 2 * time.Second  // for a connection
	connections = 16               // that a keeper serves at a time
)

// Limits that tests lengthen.
var (
	runsLimit  = 3 * time.Second // for the first byte of an answer, which says that the keeper runs
	askLimit   = 5 * time.Second // for an answer
	serveLimit = 4 * time.Second // for a request; above runsLimit, so that the other side gives up first
)

// received is what a keeper sends at once. White space is no part of an answer.
const received = "\n"

// Ask asks the keeper at a socket. Errors: ErrGone, ErrForeign, ErrSilent, which is a *Silence if the
// keeper could be asked. Ask takes 5 seconds at most, and for Release 30; if the keeper is stopped, 3. A
// keeper on a busy machine may close the connection before it takes the request. Then it is asked again.
func Ask(socket string, op Op) (*Answer, error) {
	a, err := ask(socket, op)
	if errors.Is(err, errNotTaken) {
		a, err = ask(socket, op) // a keeper that has ended takes no connection
	}
	return a, err
}

// errNotTaken is the ErrGone of a keeper that has closed the connection, and has not taken the request.
var errNotTaken = fmt.Errorf("%w: it has not taken the request", ErrGone)

func ask(socket string, op Op) (*Answer, error) {
	conn, err := net.DialTimeout("unix", socket, dialLimit)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w (%s)", ErrGone, socket)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSilent, err)
	}
	defer conn.Close()
	pid, err := samePeer(conn.(*net.UnixConn))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", socket, ErrForeign, err)
	}
	silence := &Silence{PID: pid, After: runsLimit}
	_ = conn.SetDeadline(time.Now().Add(runsLimit))
	in := bufio.NewReader(io.LimitReader(conn, maxText))
	a := new(Answer)
	_, err = fmt.Fprintln(conn, op)
	if err == nil {
		_, err = in.Peek(1)
	}
	gone := errNotTaken
	if err == nil {
		gone = ErrGone // it ended meanwhile
		silence.Runs, silence.After = true, askLimit
		if op == Release {
			silence.After = endLimit
		}
		_ = conn.SetDeadline(time.Now().Add(silence.After))
		err = json.NewDecoder(in).Decode(a)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return nil, fmt.Errorf("%w (%s)", gone, socket)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, silence
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return a, nil
}

// Socket is the socket of a keeper.
type Socket struct {
	Path     string
	hidden   string // its path until Publish
	listener *net.UnixListener
	slots    chan struct{}

	mu      sync.Mutex
	closed  bool           // Close waits for the answers, and no other may begin
	answers sync.WaitGroup // under way
}

// Listen makes a socket for a hold of the lock. Nobody sees it before Publish.
func Listen(name string) (*Socket, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	s := &Socket{slots: make(chan struct{}, connections)}
	serial := strings.ToLower(rand.Text()[:8])
	s.Path = filepath.Join(dir, prefix(name)+serial+suffix)
	s.hidden = filepath.Join(dir, "new-"+serial)
	if len(s.Path) > maxPath {
		return nil, fmt.Errorf("the path of the socket is too long for this system: %s (XDG_RUNTIME_DIR names another folder)", s.Path)
	}
	s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	s.listener.SetUnlinkOnClose(false) // its name changes
	return s, nil
}

// maxPath is the longest path of a socket on every system.
const maxPath = 103

const suffix = ".sock"

// prefix begins the names of the sockets of a lock. It has the name as a hash: it may be long, and
// have any character.
func prefix(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "hold-" + hex.EncodeToString(sum[:6]) + "-"
}

// Publish lets others see the socket.
func (s *Socket) Publish() error { return os.Rename(s.hidden, s.Path) }

// Close ends the socket, and waits for the answers that are under way. Later requests find that the
// keeper has ended.
func (s *Socket) Close() error {
	err := s.listener.Close()
	for _, path := range []string{s.hidden, s.Path} {
		if rerr := os.Remove(path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.answers.Wait()
	return err
}

// Serve passes requests of this user on to serve, one goroutine each, until Close.
func (s *Socket) Serve(serve func(Op) *Answer) {
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, perhaps
			time.Sleep(50 * time.Millisecond)
			continue
		}
		s.slots <- struct{}{}
		if !s.begin(func() {
			defer func() { <-s.slots; conn.Close() }()
			answer(conn, serve)
		}) {
			conn.Close()
			return
		}
	}
}

// begin calls f in a goroutine that Close waits for. It reports false if Close may not wait any more.
func (s *Socket) begin(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.answers.Go(f)
	return true
}

func answer(conn *net.UnixConn, serve func(Op) *Answer) {
	if _, err := samePeer(conn); err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(serveLimit))
	var op Op
	if _, err := fmt.Fscanln(io.LimitReader(conn, 64), &op); err != nil {
		return
	}
	if !slices.Contains([]Op{Check, Release, HandOff}, op) {
		return
	}
	if _, err := io.WriteString(conn, received); err != nil {
		return
	}
	a := serve(op)
	if a == nil { // the keeper has ended
		return
	}
	_ = conn.SetDeadline(time.Now().Add(serveLimit))
	_ = json.NewEncoder(conn).Encode(a)
}

// Find returns the sockets of all holds of a lock by this user, also of keepers that were killed.
func Find(name string) ([]string, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, prefix(name)) && strings.HasSuffix(n, suffix) {
			list = append(list, filepath.Join(dir, n))
		}
	}
	return list, nil
}

// Of reports whether a socket is that of a hold of the lock, by its name.
func Of(socket, name string) bool { return strings.HasPrefix(filepath.Base(socket), prefix(name)) }

// Tidy removes the socket if its keeper has been killed.
func Tidy(socket string) {
	conn, err := net.DialTimeout("unix", socket, dialLimit)
	if err == nil {
		_ = conn.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(socket)
	}
}
