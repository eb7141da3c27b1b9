// Package zookeeper configures ZooKeeper servers that package servers starts, and speaks to them
// where no session is needed.
package zookeeper

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Packages says what must be installed.
const Packages = "default-jre-headless, libzookeeper-java, libslf4j-java and libnetty-java " +
	"(Debian: apt-get install --no-install-recommends default-jre-headless libzookeeper-java libslf4j-java libnetty-java)"

// Command configures a server, whose data is in the folder dir, and returns its command line. The
// last word is the path of the configuration. settings are lines of it ("maxSessionTimeout=5000")
// or, with a leading -D, of the JVM; later ones override earlier ones. They name the port.
//
// A tick is 100 ms, so sessions last 200 ms to 2 s. Nothing is synced to the disk, containers are
// reaped within a second, and any number of clients may connect. The threads that wait for the
// network also read and write, which saves a hand-over to workers.
func Command(dir string, settings ...string) ([]string, error) {
	jars, err := Jars()
	if err != nil {
		return nil, err
	}
	config := []string{
		"tickTime=100", "dataDir=" + dir, "maxClientCnxns=0", "admin.enableServer=false",
		"4lw.commands.whitelist=*", "initLimit=20", "syncLimit=10",
	}
	java := []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.forceSync=no", "-Dzookeeper.admin.enableServer=false",
		"-Dznode.container.checkIntervalMs=500", "-Dzookeeper.nio.numWorkerThreads=0",
		"-Dzookeeper.electionPortBindRetry=100",
	}
	for _, s := range settings {
		if strings.HasPrefix(s, "-D") {
			java = append(java, s)
		} else {
			config = append(config, s)
		}
	}
	file := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	return append(append([]string{"java"}, java...), "-cp", jars,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file), nil
}

// At returns the settings of a server for clients without TLS.
func At(addr string) []string {
	host, port, _ := net.SplitHostPort(addr)
	return []string{"clientPort=" + port, "clientPortAddress=" + host}
}

// Jars returns the class path. The manifest of Debian's zookeeper.jar names its dependencies,
// except for the parts of Netty. HOLDFAST_TEST_ZOOKEEPER is the class path of another release of
// ZooKeeper. The error names a missing jar.
func Jars() (string, error) {
	if other := os.Getenv("HOLDFAST_TEST_ZOOKEEPER"); other != "" {
		return other, nil
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
			return "", err
		}
	}
	return strings.Join(names, ":"), nil
}

// Word sends a four-letter word ("srvr", "wchs", …) on a new connection, and returns the reply.
func Word(c net.Conn, word string) (string, error) {
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// modeLimit bounds how long Mode waits. ZooKeeper 3.8 never answers some of the connections that
// clients open while it starts, so a caller that waits for the start must ask again soon.
const modeLimit = 3 * time.Second

// Mode asks on a new connection whether the server is "standalone", "leader" or "follower"; an
// error means that the server does not serve.
func Mode(c net.Conn) (string, error) {
	if err := c.SetDeadline(time.Now().Add(modeLimit)); err != nil {
		return "", err
	}
	reply, err := Word(c, "srvr")
	if _, mode, ok := strings.Cut(reply, "Mode: "); ok {
		mode, _, _ = strings.Cut(mode, "\n")
		return mode, nil
	}
	return "", cmp.Or(err, fmt.Errorf("srvr: %q", reply))
}

// CloseSession ends a session as its own client could: on a new connection it joins the session
// with its password, and closes it. alive is false if there is no such session. The client may take
// its session back meanwhile, so the caller repeats CloseSession until it is not alive.
func CloseSession(c net.Conn, id int64, password []byte) (alive bool, err error) {
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
