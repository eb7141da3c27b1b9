// Package server starts a server for the examples, with data that nobody keeps.
package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// Stores are the stores that Start knows.
var Stores = []string{"redis", "mysql", "zookeeper"}

// Start starts the server of a store on a free port of the loopback interface, if it is installed.
// It returns the URL of the store, and a function that ends the server and removes its data.
func Start(ctx context.Context, store string) (url string, stop func(), err error) {
	ports, err := servers.FreePorts(1)
	if err != nil {
		return "", nil, err
	}
	account, err := servers.NewAccount("holdfast-example-", map[string]string{"mysql": "mysql"}[store])
	if err != nil {
		return "", nil, err
	}
	s := &server{Account: account, port: strconv.Itoa(ports[0])}
	s.addr = "127.0.0.1:" + s.port
	switch store {
	case "redis":
		url, err = "redis://"+s.addr, s.redis()
	case "mysql":
		url, err = "mysql://root@"+s.addr+"/shop", s.mysql(ctx)
	case "zookeeper":
		url, err = "zookeeper://"+s.addr, s.zookeeper()
	default:
		err = fmt.Errorf("there is no server of the store %q; there are those of %s", store, strings.Join(Stores, ", "))
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err = s.run.Await(ctx, s.ready)
	}
	if err != nil {
		err = fmt.Errorf("start the server of %s: %w\n%s", store, err, s.run.Output(4000))
		s.stop()
		return "", nil, err
	}
	return url, s.stop, nil
}

type server struct {
	servers.Account
	addr, port string
	run        servers.Server
	hello      string // what a client sends first
	answer     string // is in what the server answers
}

// stop kills the server: nobody needs its data again.
func (s *server) stop() {
	_ = s.run.Kill() // it returns no error of a server that does not fork
	_ = os.RemoveAll(s.Dir)
}

func (s *server) redis() error {
	program, err := servers.Find("redis-server")
	if err != nil {
		return fmt.Errorf("%w (Debian: apt-get install redis-server)", err)
	}
	s.hello, s.answer = "PING\r\n", "+PONG"
	return s.run.Start(exec.Command(program, "--bind", "127.0.0.1", "--port", s.port, "--dir", s.Dir, "--save", ""))
}

// mysql starts MariaDB with an empty database "shop".
func (s *server) mysql(ctx context.Context) error {
	program, err := servers.Find("mariadbd", "/usr/sbin")
	var installer string
	if err == nil {
		installer, err = servers.Find("mariadb-install-db")
	}
	if err != nil {
		return fmt.Errorf("%w (Debian: apt-get install mariadb-server)", err)
	}
	data := []string{"--no-defaults", "--datadir=" + s.Path("data"), "--tmpdir=" + s.Dir, "--skip-name-resolve"}
	install, err := s.Command(append(append([]string{installer}, data...), "--auth-root-authentication-method=normal",
		"--skip-test-db")...)
	if err != nil {
		return err
	}
	if _, err := servers.Run(ctx, install); err != nil {
		return err
	}
	shop := filepath.Join(s.Path("data"), "shop") // a database is a folder
	if err := os.Mkdir(shop, 0o700); err != nil {
		return err
	}
	if err := s.Own(shop); err != nil {
		return err
	}
	cmd, err := s.Command(append(append([]string{program}, data...), "--bind-address=127.0.0.1", "--port="+s.port,
		"--socket="+s.Path("s"), "--pid-file="+s.Path("pid"))...)
	if err != nil {
		return err
	}
	s.answer = "MariaDB" // the greeting has the version
	return s.run.Start(cmd)
}

func (s *server) zookeeper() error {
	const folder = "/usr/share/java/"
	jars := folder + "zookeeper.jar:" + folder + "slf4j-nop.jar" // the manifest of the first names the others
	program, err := servers.Find("java")
	if err == nil {
		_, err = os.Stat(folder + "zookeeper.jar")
	}
	if err != nil {
		return fmt.Errorf("%w (Debian: apt-get install default-jre-headless libzookeeper-java libslf4j-java)", err)
	}
	// A session, and so a lease, lasts from 2 to 20 ticks: from 1 to 10 seconds.
	config := "tickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\ndataDir=" + s.Dir +
		"\nclientPortAddress=127.0.0.1\nclientPort=" + s.port + "\n"
	if err := os.WriteFile(s.Path("zoo.cfg"), []byte(config), 0o600); err != nil {
		return err
	}
	s.hello, s.answer = "srvr", "Zookeeper version"
	return s.run.Start(exec.Command(program, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", s.Path("zoo.cfg")))
}

// ready returns nil if the server answers a client.
func (s *server) ready() error {
	c, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, s.hello); err != nil {
		return err
	}
	var got strings.Builder
	for in := bufio.NewReader(c); !strings.Contains(got.String(), s.answer); {
		b, err := in.ReadByte()
		if err != nil {
			return fmt.Errorf("it answered %q: %w", got.String(), err)
		}
		got.WriteByte(b)
	}
	return nil
}
