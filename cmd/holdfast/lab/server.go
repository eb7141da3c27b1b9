package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/open"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// startLimit bounds how long a server may take until it answers.
const startLimit = time.Minute

// Server is a redis-server of the lab, on a free port of the loopback interface. It has a random
// password, a folder of its own under TMPDIR, and no persistence. It ends with Close, and on Linux
// also with the process that started it.
type Server struct {
	addr     string
	password string
	dir      string
	args     []string // more lines of configuration

	run servers.Server
}

// Start starts a server with more lines of configuration, such as those of Follow. ctx bounds the
// start only. Errors: driver.ErrUnavailable, with what to install if redis-server is missing.
func Start(ctx context.Context, lines ...string) (*Server, error) {
	if err := redisMissing(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdfast-lab")
	if err != nil {
		return nil, fmt.Errorf("%w: a folder for redis-server: %w", driver.ErrUnavailable, err)
	}
	s := &Server{password: rand.Text(), dir: dir, args: lines}
	const tries = 5 // another program may take the free port first
	for range tries {
		var ports []int
		if ports, err = servers.FreePorts(1); err != nil {
			err = fmt.Errorf("%w: no free port of the loopback interface: %w", driver.ErrUnavailable, err)
			break
		}
		s.addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
		if err = s.start(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// redisMissing says what must be installed.
func redisMissing() error {
	if _, err := exec.LookPath("redis-server"); err == nil {
		return nil
	}
	return fmt.Errorf(
		"%w: the lab needs redis-server, which is not in PATH: install it (Debian, Ubuntu: apt-get install redis-server; "+
			"Fedora: dnf install redis; macOS: brew install redis), or name a server with --store redis://HOST",
		driver.ErrUnavailable)
}

// start starts the process and waits until it answers to the password.
func (s *Server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	_, port, _ := net.SplitHostPort(s.addr)
	// The configuration goes to standard input: an argument would show the password in the list of
	// processes.
	conf := append([]string{
		"bind 127.0.0.1", "port " + port, "dir " + s.dir, `save ""`, "appendonly no", "daemonize no",
		"requirepass " + s.password,
		"repl-diskless-sync yes", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
	}, s.args...)
	cmd := exec.Command("redis-server", "-")
	cmd.Dir, cmd.Env = s.dir, open.Environ()
	cmd.Stdin = strings.NewReader(strings.Join(conf, "\n") + "\n")
	if err := s.run.Start(cmd); err != nil {
		return fmt.Errorf("%w: redis-server cannot be started: %w", driver.ErrUnavailable, err)
	}
	err := s.run.Await(ctx, s.answers)
	if errors.Is(err, servers.ErrEnded) {
		return fmt.Errorf("%w: redis-server ended at once: %s", driver.ErrUnavailable, s.printed())
	}
	if err != nil {
		s.Kill()
		return fmt.Errorf("%w: redis-server does not answer: %w: %s", driver.ErrUnavailable, err, s.printed())
	}
	return nil
}

// answers returns nil if the server at the address accepts the password, so it is ours.
func (s *Server) answers() error {
	c, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return err
	}
	_ = c.Close()
	conn, err := rueidisconn.Dial(s.URL())
	if err != nil {
		return err
	}
	return conn.Close()
}

// printed returns the end of the server's output.
func (s *Server) printed() string { return strings.TrimSpace(s.run.Output(2000)) }

// URL returns the URL for clients. It contains the password.
func (s *Server) URL() string { return "redis://:" + s.password + "@" + s.addr }

// Follow returns the lines of configuration that make another server a replica of s, over the
// address addr.
func (s *Server) Follow(addr string) []string {
	host, port, _ := net.SplitHostPort(addr)
	return []string{"replicaof " + host + " " + port, "masterauth " + s.password}
}

// Kill ends the server as a crash does, and returns when it has ended.
func (s *Server) Kill() { _ = s.run.Kill() } // it returns no error of a server that does not fork

// Restart starts a killed server again, at the same address and without any data.
func (s *Server) Restart(ctx context.Context) error { return s.start(ctx) }

// Close ends the server and removes its folder.
func (s *Server) Close() {
	s.Kill()
	_ = os.RemoveAll(s.dir) // the system removes temporary files that remain
}
