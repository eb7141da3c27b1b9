package testenv

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const zooKeeperPackages = "default-jre-headless, libzookeeper-java, libslf4j-java and libnetty-java " +
	"(Debian: apt-get install --no-install-recommends default-jre-headless libzookeeper-java libslf4j-java libnetty-java)"

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
	needs(t, "java", zooKeeperPackages)
	dir := t.TempDir()
	z := &ZooKeeperServer{server{Addr: freeAddr(t), TLS: certs, t: t, what: "the ZooKeeper server", data: dir}}
	z.ready = func() error { _, err := z.mode(); return err }
	host, port, _ := net.SplitHostPort(z.Addr)
	config := []string{
		"tickTime=100", "dataDir=" + dir, "maxClientCnxns=0", "admin.enableServer=false",
		"4lw.commands.whitelist=*", "initLimit=20", "syncLimit=10",
	}
	if certs == nil {
		config = append(config, "clientPort="+port, "clientPortAddress="+host)
	} else {
		key, trust := pemStores(t, certs)
		config = append(config, "secureClientPort="+port, "secureClientPortAddress="+host,
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location="+key, "ssl.keyStore.type=PEM",
			"ssl.trustStore.location="+trust, "ssl.trustStore.type=PEM", "ssl.clientAuth=need")
	}
	java := []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.forceSync=no", "-Dzookeeper.admin.enableServer=false",
		"-Dznode.container.checkIntervalMs=500", "-Dzookeeper.electionPortBindRetry=100",
	}
	for _, s := range settings {
		if strings.HasPrefix(s, "-D") {
			java = append(java, s)
		} else {
			config = append(config, s)
		}
	}
	file := filepath.Join(dir, "zoo.cfg")
	must(t, os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600))
	z.argv = append(append([]string{"java"}, java...), "-cp", zooKeeperJars(t),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	t.Cleanup(z.Kill)
	return z
}

// zooKeeperJars returns the class path. The manifest of Debian's zookeeper.jar names its
// dependencies, except for the parts of Netty. A missing jar fails the test.
// HOLDFAST_TEST_ZOOKEEPER is the class path of another release of ZooKeeper.
func zooKeeperJars(t testing.TB) string {
	t.Helper()
	if other := os.Getenv("HOLDFAST_TEST_ZOOKEEPER"); other != "" {
		return other
	}
	const folder = "/usr/share/java"
	names := []string{"zookeeper", "slf4j-simple"}
	for _, part := range []string{"buffer", "codec", "common", "handler", "resolver", "transport",
		"transport-native-epoll", "transport-native-unix-common"} {
		names = append(names, "netty-"+part)
	}
	for i, n := range names {
		names[i] = filepath.Join(folder, n+".jar")
		if _, err := os.Stat(names[i]); err != nil {
			t.Fatalf("%v; this test needs %s", err, zooKeeperPackages)
		}
	}
	return strings.Join(names, ":")
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
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
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
	cmd := exec.Command("java", append([]string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", zooKeeperJars(z.t),
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
	reply, err := z.Word("srvr")
	if _, mode, ok := strings.Cut(reply, "Mode: "); ok {
		mode, _, _ = strings.Cut(mode, "\n")
		return mode, nil
	}
	return "", cmp.Or(err, fmt.Errorf("srvr: %q", reply))
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
	send := func(values ...any) {
		var b bytes.Buffer
		for _, v := range values {
			_ = binary.Write(&b, binary.BigEndian, v) // a buffer returns no errors
		}
		_, werr := c.Write(b.Bytes())
		err = cmp.Or(err, werr)
	}
	// Length; protocol, last transaction, timeout, session, password.
	send(int32(28+len(password)), int32(0), int64(0), int32(1000), id, int32(len(password)), password)
	reply := make([]byte, 20)
	if _, rerr := io.ReadFull(c, reply); rerr != nil {
		return false, cmp.Or(err, rerr)
	}
	if int64(binary.BigEndian.Uint64(reply[12:])) != id {
		return false, nil
	}
	send(int32(8), int32(1), int32(-11)) // the header of closeSession
	_, _ = io.Copy(io.Discard, c)        // the server closes the connection
	return true, err
}
