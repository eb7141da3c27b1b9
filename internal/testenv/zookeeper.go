package testenv

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers/zookeeper"
)

// ZooKeeperServer is a ZooKeeper server of one test, with a data folder of its own.
type ZooKeeperServer struct{ server }

// ZooKeeper starts one server. settings are lines of its configuration ("maxSessionTimeout=5000")
// or, with a leading -D, of its JVM. A tick is 100 ms, so sessions last 200 ms to 2 s. Nothing is
// synced to the disk, containers are reaped within a second, and any number of clients may connect.
func ZooKeeper(t testing.TB, settings ...string) *ZooKeeperServer {
	t.Helper()
	z := newZooKeeper(t, nil, settings)
	z.Start()
	return z
}

// ZooKeeperTLS starts one server that accepts only TLS and demands a client certificate.
func ZooKeeperTLS(t testing.TB, settings ...string) *ZooKeeperServer {
	t.Helper()
	z := newZooKeeper(t, NewCerts(t), settings)
	z.Start()
	return z
}

// newZooKeeper prepares a server. Later settings override earlier ones.
func newZooKeeper(t testing.TB, certs *Certs, settings []string) *ZooKeeperServer {
	t.Helper()
	needs(t, "java", zookeeper.Packages)
	dir := t.TempDir()
	z := &ZooKeeperServer{server{Addr: FreeAddr(t), TLS: certs, t: t, what: "the ZooKeeper server", data: dir}}
	z.ready = func() error { _, err := z.mode(); return err }
	at := zookeeper.At(z.Addr)
	if certs != nil {
		host, port, _ := net.SplitHostPort(z.Addr)
		key, trust := pemStores(t, certs)
		at = []string{"secureClientPort=" + port, "secureClientPortAddress=" + host,
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location=" + key, "ssl.keyStore.type=PEM",
			"ssl.trustStore.location=" + trust, "ssl.trustStore.type=PEM", "ssl.clientAuth=need"}
	}
	var err error
	if z.argv, err = zookeeper.Command(dir, append(at, settings...)...); err != nil {
		t.Fatalf("%v; this test needs %s", err, zookeeper.Packages)
	}
	t.Cleanup(z.Kill)
	return z
}

// pemStores writes the certificate and the authority in the form that ZooKeeper reads.
func pemStores(t testing.TB, c *Certs) (key, trust string) {
	t.Helper()
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		must(t, err)
		return b
	}
	block, _ := pem.Decode(read(c.Key))
	ec, err := x509.ParseECPrivateKey(block.Bytes)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(ec)
	must(t, err)
	key = filepath.Join(t.TempDir(), "key.pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), read(c.Cert)...)
	must(t, os.WriteFile(key, both, 0o600))
	return key, c.CA
}

// URL returns the server's URL without credentials.
func (z *ZooKeeperServer) URL() string {
	if z.TLS != nil {
		return z.url("zookeepers")
	}
	return z.url("zookeeper")
}

// Word sends a four-letter word ("srvr", "wchs", …) and returns the reply.
func (z *ZooKeeperServer) Word(word string) (string, error) {
	c, err := z.dial()
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return zookeeper.Word(c, word)
}

// Shell runs a command of ZooKeeper's own shell ("ls /") and returns the last line of its output.
func (z *ZooKeeperServer) Shell(command ...string) string {
	z.t.Helper()
	if lines := z.shell(command...); len(lines) > 0 {
		return lines[len(lines)-1]
	}
	return ""
}

// Tree lists the paths of all nodes from path on.
func (z *ZooKeeperServer) Tree(path string) []string {
	z.t.Helper()
	return z.shell("ls", "-R", path)
}

// shell runs a command of ZooKeeper's own shell and returns the lines of its output.
func (z *ZooKeeperServer) shell(command ...string) (lines []string) {
	z.t.Helper()
	jars, err := zookeeper.Jars()
	must(z.t, err)
	cmd := exec.Command("java", append([]string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", jars,
		"org.apache.zookeeper.ZooKeeperMain", "-server", z.Addr}, command...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		z.t.Fatalf("%v: %v\n%s", command, err, out)
	}
	for line := range strings.Lines(string(out)) {
		// The shell reports its connection at any time, even in the middle.
		if line = strings.TrimSpace(line); line != "" && line != "WATCHER::" && !strings.HasPrefix(line, "WatchedEvent ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// mode returns "standalone", "leader" or "follower"; an error means that the server does not serve.
func (z *ZooKeeperServer) mode() (string, error) {
	c, err := z.dial()
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return zookeeper.Mode(c)
}

// Expire ends a session as its own client could: it joins the session with its password, and closes
// it. The session's client learns that it has expired.
func (z *ZooKeeperServer) Expire(id int64, password []byte) {
	z.t.Helper()
	// The client reconnects when Expire takes over its session, and may take it back.
	var alive bool
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if alive, err = z.closeSession(id, password); err == nil && !alive {
			return
		}
	}
	z.t.Fatalf("session %#x: alive: %v, %v", id, alive, err)
}

// closeSession joins a session and closes it. alive is false if there is no such session.
func (z *ZooKeeperServer) closeSession(id int64, password []byte) (alive bool, err error) {
	c, err := z.dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	return zookeeper.CloseSession(c, id, password)
}
