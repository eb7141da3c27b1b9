package testenv

import (
	"cmp"
	"crypto/tls"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
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

	data    string         // the folder of its data
	env     []string       // added to the test's environment
	account *account       // its user; nil: the user of the test
	quit    syscall.Signal // the signal for a graceful end; 0: SIGTERM
	forks   bool           // it forks processes that serve: they are frozen and killed with it

	mu       sync.Mutex
	proc     *process
	log      *output // of all its processes, one after the other; nil before the first
	endWatch func()  // ends the watch over frozen processes
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
		cmd = s.account.command(s.t, s.argv)
	}
	s.mu.Lock()
	if s.env != nil {
		cmd.Env = append(cmd.Environ(), s.env...)
	}
	s.mu.Unlock()
	s.mu.Lock()
	if s.log == nil {
		s.log = &output{most: mostLog}
		showWhenFailed(s.t, s)
	}
	log := s.log
	s.mu.Unlock()
	p := start(s.t, cmd, log)
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
}

func (s *server) await() {
	s.t.Helper()
	s.current().waitFor(s.t, s.what, s.ready)
}

// Stop stops the server gracefully. Its persistent data is kept.
func (s *server) Stop() {
	s.t.Helper()
	p := s.current()
	if p != nil && s.forks {
		p.signal(cmp.Or(s.quit, syscall.SIGTERM))
		s.Continue() // the parent waits for its children
	}
	p.end(cmp.Or(s.quit, syscall.SIGTERM))
}

// Kill stops the server at once.
func (s *server) Kill() {
	s.t.Helper()
	p := s.current()
	if p == nil || !s.forks {
		p.end(syscall.SIGKILL)
		return
	}
	// While frozen, the parent can neither fork nor notice that its children die.
	kids := s.freeze(p)
	signalAll(kids, syscall.SIGKILL)
	p.end(syscall.SIGKILL)
	s.gone(kids)
	s.watch(nil)
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
	s.watch(s.freeze(s.current()))
}

// Continue ends Pause.
func (s *server) Continue() {
	s.t.Helper()
	p := s.current()
	if s.forks && !p.ended() {
		signalAll(children(s.t, p.pid()), sigCont)
		s.watch(nil)
	}
	p.signal(sigCont)
}

// Ended reports whether the server is down for any reason, and the end of its output.
func (s *server) Ended() (printed string, ended bool) {
	p := s.current()
	if p == nil || !p.ended() {
		return "", false
	}
	printed = p.out.String()
	return printed[max(0, len(printed)-4000):], true
}

func (s *server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// dial connects as a client does, for a short exchange.
func (s *server) dial() (net.Conn, error) {
	const limit = 2 * time.Second
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
