// Package testenv starts real servers for tests, on free ports of the loopback interface,
// and a proxy that spoils the connections to them.
//
// A server dies with its test: it is stopped by the test's cleanup, and on Linux by the
// kernel if the test process dies. Under -short the tests that need one are skipped; a
// server that is not installed fails them.
package testenv

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// RedisServer is a redis-server of a test's own, with a data folder of its own.
type RedisServer struct {
	Addr   string // host:port; with TLS only TLS is spoken there
	Socket string // path of the Unix socket
	TLS    *Certs // of RedisTLS

	t    testing.TB
	dir  string
	args []string

	mu   sync.Mutex
	proc *process
}

// Redis starts a server, with more arguments as on its command line ("--appendonly",
// "yes"). It keeps nothing on disk unless told to.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, nil, args)
}

// RedisACL starts a server with users, one rule each as in an ACL file
// ("user hf on >secret ~hf:* ..."), and with more arguments. The default user may do all.
func RedisACL(t testing.TB, users []string, args ...string) *RedisServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.acl")
	text := strings.Join(append([]string{"user default on nopass sanitize-payload ~* &* +@all"}, users...), "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startRedis(t, nil, append([]string{"--aclfile", file}, args...))
}

// RedisTLS starts a server that speaks TLS only and asks for a client certificate.
func RedisTLS(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, NewCerts(t), args)
}

func startRedis(t testing.TB, certs *Certs, args []string) *RedisServer {
	t.Helper()
	needs(t, "redis-server", "redis-server (Debian, Ubuntu: apt-get install redis-server)")
	// Not t.TempDir: the path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	r := &RedisServer{Addr: freeAddr(t), Socket: filepath.Join(dir, "s"), TLS: certs, t: t, dir: dir}
	_, port, _ := net.SplitHostPort(r.Addr)
	r.args = []string{"--bind", "127.0.0.1", "--dir", dir, "--unixsocket", r.Socket, "--save", "", "--daemonize", "no"}
	if certs == nil {
		r.args = append(r.args, "--port", port)
	} else {
		r.args = append(r.args, "--port", "0", "--tls-port", port, "--tls-ca-cert-file", certs.CA,
			"--tls-cert-file", certs.Cert, "--tls-key-file", certs.Key)
	}
	r.args = append(r.args, args...)
	t.Cleanup(func() {
		r.Kill()
		_ = os.RemoveAll(dir)
	})
	r.Start()
	return r
}

// URL is the server's URL without credentials.
func (r *RedisServer) URL() string {
	if r.TLS != nil {
		return "rediss://" + r.Addr + "?ca=" + r.TLS.CA + "&cert=" + r.TLS.Cert + "&key=" + r.TLS.Key
	}
	return "redis://" + r.Addr
}

// Start starts the server after Stop or Kill, and returns when it serves.
func (r *RedisServer) Start() {
	r.t.Helper()
	p := start(r.t, exec.Command("redis-server", r.args...))
	r.mu.Lock()
	r.proc = p
	r.mu.Unlock()
	p.waitFor(r.t, "the Redis server", func() error {
		reply, err := r.command("PING")
		if err == nil && !strings.HasPrefix(reply, "+PONG") && !strings.HasPrefix(reply, "-NOAUTH") {
			err = fmt.Errorf("PING: %s", reply)
		}
		return err
	})
}

// Stop stops the server gracefully. What it persists is kept.
func (r *RedisServer) Stop() { r.current().end(syscall.SIGTERM) }

// Kill stops the server at once.
func (r *RedisServer) Kill() { r.current().end(syscall.SIGKILL) }

// Restart stops the server, gracefully or not, and starts it again with its data.
func (r *RedisServer) Restart(graceful bool) {
	r.t.Helper()
	if graceful {
		r.Stop()
	} else {
		r.Kill()
	}
	r.Start()
}

// Pause freezes the server; its connections stay open.
func (r *RedisServer) Pause() { r.current().signal(sigStop) }

// Continue ends Pause.
func (r *RedisServer) Continue() { r.current().signal(sigCont) }

// Do runs a command given in one line, by the default user, and returns the first line of the reply.
func (r *RedisServer) Do(line string) string {
	r.t.Helper()
	reply, err := r.command(line)
	if err != nil {
		r.t.Fatalf("%s: %v", line, err)
	}
	return reply
}

func (r *RedisServer) current() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc
}

func (r *RedisServer) command(line string) (string, error) {
	const limit = 2 * time.Second
	d := &net.Dialer{Timeout: limit}
	var c net.Conn
	var err error
	if r.TLS != nil {
		c, err = tls.DialWithDialer(d, "tcp", r.Addr, r.TLS.Client(r.t))
	} else {
		c, err = d.Dial("tcp", r.Addr)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "%s\r\n", line); err != nil {
		return "", err
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(reply), err
}

// Existing returns the address in HOLDFAST_TEST_REDIS, if it is set: a server that tests
// may use which neither stop it nor change its configuration. Else it starts one.
func Existing(t testing.TB) (addr string) {
	t.Helper()
	if addr := os.Getenv("HOLDFAST_TEST_REDIS"); addr != "" {
		return addr
	}
	return Redis(t).Addr
}
