// Package testenv starts real servers for tests, on free ports of the loopback interface, and a
// proxy that disturbs the connections to them.
//
// A server ends with its test: the test's cleanup stops it, and on Linux the kernel kills it if the
// test process dies. Under -short, tests that need a server are skipped. If a server is not
// installed, its tests fail.
package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisServer is a redis-server of one test, with a data folder of its own.
type RedisServer struct {
	server
	Socket string // path of the Unix socket
}

// Redis starts a server. args are further arguments as on its command line ("--appendonly", "yes").
// By default it writes nothing to disk.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, nil, args)
}

// RedisACL starts a server with users, one rule each as in an ACL file ("user hf on >secret ~hf:*
// ..."), and with further arguments. The default user may do everything.
func RedisACL(t testing.TB, users []string, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, nil, append(aclArgs(t, users), args...))
}

// aclArgs returns the arguments of a server with users.
func aclArgs(t testing.TB, users []string) []string {
	t.Helper()
	if len(users) == 0 {
		return nil
	}
	file := filepath.Join(t.TempDir(), "users.acl")
	text := strings.Join(append([]string{"user default on nopass sanitize-payload ~* &* +@all"}, users...), "\n") + "\n"
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return []string{"--aclfile", file}
}

// RedisTLS starts a server that accepts only TLS and demands a client certificate.
func RedisTLS(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, NewCerts(t), args)
}

func startRedis(t testing.TB, certs *Certs, args []string) *RedisServer {
	t.Helper()
	// Else it uses its own port plus 10,000, which may be taken.
	if slices.Contains(args, "--cluster-enabled") {
		_, bus, err := net.SplitHostPort(FreeAddr(t))
		must(t, err)
		args = append(slices.Clone(args), "--cluster-port", bus)
	}
	r := newRedis(t, certs, FreeAddr(t), args)
	r.Start()
	return r
}

// newRedis returns a server that is not started.
func newRedis(t testing.TB, certs *Certs, addr string, args []string) *RedisServer {
	t.Helper()
	needs(t, "redis-server", "redis-server (Debian, Ubuntu: apt-get install redis-server)")
	// Not t.TempDir: the path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "redis")
	must(t, err)
	r := &RedisServer{server: server{Addr: addr, TLS: certs, t: t, what: "the Redis server", data: dir},
		Socket: filepath.Join(dir, "s")}
	r.ready = r.ping
	_, port, _ := net.SplitHostPort(r.Addr)
	r.argv = []string{"redis-server", "--bind", "127.0.0.1", "--dir", dir, "--unixsocket", r.Socket, "--save", "",
		"--daemonize", "no"}
	if certs == nil {
		r.argv = append(r.argv, "--port", port)
	} else {
		r.argv = append(r.argv, "--port", "0", "--tls-port", port, "--tls-ca-cert-file", certs.CA,
			"--tls-cert-file", certs.Cert, "--tls-key-file", certs.Key)
	}
	r.argv = append(r.argv, args...)
	t.Cleanup(func() {
		r.Kill()
		_ = os.RemoveAll(dir)
	})
	return r
}

// URL returns the server's URL without credentials.
func (r *RedisServer) URL() string {
	if r.TLS != nil {
		return r.url("rediss")
	}
	return r.url("redis")
}

func (r *RedisServer) ping() error {
	reply, err := r.command("PING")
	if err == nil && !strings.HasPrefix(reply, "+PONG") && !strings.HasPrefix(reply, "-NOAUTH") {
		err = fmt.Errorf("PING: %s", reply)
	}
	return err
}

// Do runs a command given in one line, as the default user, and returns the first line of the
// reply.
func (r *RedisServer) Do(line string) string {
	r.t.Helper()
	reply, err := r.command(line)
	if err != nil {
		r.t.Fatalf("%s: %v", line, err)
	}
	return reply
}

func (r *RedisServer) command(line string) (string, error) {
	var reply string
	err := r.exchange(line, func(in *bufio.Reader) (err error) {
		reply, err = in.ReadString('\n')
		return err
	})
	return strings.TrimSpace(reply), err
}

// call runs a command given in one line and returns the texts and numbers of the reply, in order.
func (r *RedisServer) call(line string) (words []string, err error) {
	err = r.exchange(line, func(in *bufio.Reader) error { return readReply(in, &words) })
	return words, err
}

func (r *RedisServer) exchange(line string, read func(*bufio.Reader) error) error {
	c, err := r.dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "%s\r\n", line); err != nil {
		return err
	}
	return read(bufio.NewReader(c))
}

// readReply reads one reply of any type.
func readReply(in *bufio.Reader, words *[]string) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	n, _ := strconv.Atoi(text) // not used for texts
	switch kind {
	case '-':
		return errors.New(text)
	case '*':
		for range n {
			if err := readReply(in, words); err != nil {
				return err
			}
		}
		return nil
	case '$':
		buf := make([]byte, max(n, 0)+2)
		if n < 0 { // null
			buf = buf[:0]
		}
		if _, err := io.ReadFull(in, buf); err != nil {
			return err
		}
		text = strings.TrimSuffix(string(buf), "\r\n")
	}
	*words = append(*words, text)
	return nil
}

// Info returns the fields of a section of INFO; none if the server does not answer.
func (r *RedisServer) Info(section string) map[string]string { return r.fields("INFO " + section) }

func (r *RedisServer) fields(command string) map[string]string {
	all := map[string]string{}
	words, err := r.call(command)
	if err != nil || len(words) != 1 {
		return all
	}
	for line := range strings.Lines(words[0]) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[field] = value
		}
	}
	return all
}

// Existing returns the address in HOLDFAST_TEST_REDIS, if it is set: a server that tests may use,
// but neither stop nor configure. Otherwise it starts one.
func Existing(t testing.TB) (addr string) {
	t.Helper()
	if addr := os.Getenv("HOLDFAST_TEST_REDIS"); addr != "" {
		return addr
	}
	return Redis(t).Addr
}

// eventually waits until ok, for state that servers exchange among themselves. A replica that follows a
// new primary alone takes up to 20 seconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(90 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
