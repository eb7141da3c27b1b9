package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// server is what all servers have in common: a program that can be started, stopped, killed and
// frozen, and its address.
type server struct {
	Addr string // host:port for clients; with TLS set, only TLS is accepted
	TLS  *Certs // nil without TLS

	t     testing.TB
	what  string       // "the Redis server"
	argv  []string     // the command line
	ready func() error // returns nil when it serves

	data    string   // the folder of its data
	account *account // its user; nil: the user of the test
	run     servers.Server
	logged  sync.Once // a failing test shows its output

	mu  sync.Mutex
	env []string // added to the test's environment
}

// Start starts the server after Stop or Kill, and returns when it serves.
func (s *server) Start() {
	s.t.Helper()
	s.launch()
	s.await()
}

func (s *server) launch() {
	s.t.Helper()
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	if s.account != nil {
		var err error
		cmd, err = s.account.Command(s.argv...)
		must(s.t, err)
	}
	s.mu.Lock()
	if s.env != nil {
		cmd.Env = append(cmd.Environ(), s.env...)
	}
	s.mu.Unlock()
	s.logged.Do(func() { showWhenFailed(s.t, s) })
	must(s.t, s.run.Start(cmd))
}

func (s *server) await() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a JVM starts slowly on a busy machine
	defer cancel()
	if err := s.run.Await(ctx, s.ready); errors.Is(err, servers.ErrEnded) {
		s.t.Fatalf("%s has ended:\n%s", s.what, s.run.Output(mostLog))
	} else if err != nil {
		s.t.Fatalf("%s does not serve: %v\n%s", s.what, err, s.run.Output(mostLog))
	}
}

// Stop stops the server gracefully. Its persistent data is kept.
func (s *server) Stop() {
	s.t.Helper()
	must(s.t, s.run.Stop())
}

// Kill stops the server at once.
func (s *server) Kill() {
	s.t.Helper()
	must(s.t, s.run.Kill())
}

// Restart stops the server, gracefully or not, and starts it again with its data.
func (s *server) Restart(graceful bool) {
	s.t.Helper()
	if graceful {
		s.Stop()
	} else {
		s.Kill()
	}
	s.Start()
}

// Pause freezes the server, and returns when none of its threads runs. Its connections stay open.
func (s *server) Pause() {
	s.t.Helper()
	must(s.t, s.run.Pause())
}

// Continue ends Pause.
func (s *server) Continue() {
	s.t.Helper()
	must(s.t, s.run.Continue())
}

// Ended reports whether the server is down for any reason, and the end of its output.
func (s *server) Ended() (printed string, ended bool) {
	if !s.run.Ended() {
		return "", false
	}
	return s.run.Output(4000), true
}

// dial connects as a client does, for a short exchange.
func (s *server) dial() (net.Conn, error) {
	const limit = 20 * time.Second // a busy machine may stand still for seconds
	d := &net.Dialer{Timeout: limit}
	var c net.Conn
	var err error
	if s.TLS != nil {
		c, err = tls.DialWithDialer(d, "tcp", s.Addr, s.TLS.Client(s.t))
	} else {
		c, err = d.Dial("tcp", s.Addr)
	}
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	return c, nil
}

// url returns the server's URL without credentials.
func (s *server) url(scheme string) string {
	u := scheme + "://" + s.Addr
	if s.TLS != nil {
		u += "?ca=" + s.TLS.CA + "&cert=" + s.TLS.Cert + "&key=" + s.TLS.Key
	}
	return u
}
