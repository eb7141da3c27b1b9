package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// ensemble is one ZooKeeper server or several that replicate each other, on free ports of the
// loopback interface. They have ZooKeeper's defaults: every write is on the disk before its answer.
type ensemble struct {
	addrs   []string // followers first, so that a client's place does not depend on chance
	version string
	servers []*zooKeeper
	queries int64 // queries of load so far, which the servers count, too
	run     int   // measurements so far
}

type zooKeeper struct {
	addr string
	run  servers.Server
	mode string // standalone, leader or follower
}

const zooKeeperNeeds = "needs java, and Debian's libzookeeper-java and libslf4j-java"

// zooKeeperMissing returns why ZooKeeper cannot start.
func zooKeeperMissing() error {
	for _, jar := range zooKeeperJars {
		if _, err := os.Stat(jar); err != nil {
			return fmt.Errorf("ZooKeeper %s: %w", zooKeeperNeeds, err)
		}
	}
	if _, err := exec.LookPath("java"); err != nil {
		return fmt.Errorf("ZooKeeper %s: %w", zooKeeperNeeds, err)
	}
	return nil
}

// zooKeeperJars are the class path; the manifest of the first names its other dependencies.
var zooKeeperJars = []string{"/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-nop.jar"}

// startEnsemble starts n servers with their data under dir.
func startEnsemble(ctx context.Context, dir string, n int) (*ensemble, error) {
	if err := zooKeeperMissing(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(dir, "zookeeper-")
	if err != nil {
		return nil, err
	}
	ports, err := servers.FreePorts(3 * n)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := 0; i < n && n > 1; i++ {
		peers = append(peers, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, ports[n+i], ports[2*n+i]))
	}
	e := &ensemble{}
	for i := range n {
		z, err := startZooKeeper(filepath.Join(dir, strconv.Itoa(i+1)), i+1, ports[i], peers)
		if err != nil {
			e.stop()
			return nil, err
		}
		e.servers = append(e.servers, z)
	}
	for _, z := range e.servers {
		if err := z.ready(ctx, e); err != nil {
			e.stop()
			return nil, fmt.Errorf("a ZooKeeper server did not start: %w\n%s", err, z.run.Output(mostLog))
		}
	}
	slices.SortStableFunc(e.servers, func(a, b *zooKeeper) int { return cmp.Compare(a.mode, b.mode) })
	for _, z := range e.servers {
		e.addrs = append(e.addrs, z.addr)
	}
	return e, nil
}

func startZooKeeper(dir string, id, port int, peers []string) (*zooKeeper, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	config := append([]string{
		"tickTime=2000", "initLimit=10", "syncLimit=5", "dataDir=" + dir, "maxClientCnxns=0",
		"clientPort=" + strconv.Itoa(port), "clientPortAddress=127.0.0.1",
		"admin.enableServer=false", "4lw.commands.whitelist=srvr,mntr",
	}, peers...)
	file := filepath.Join(dir, "zoo.cfg")
	if err := errors.Join(
		os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(id)), 0o600),
	); err != nil {
		return nil, err
	}
	z := &zooKeeper{addr: "127.0.0.1:" + strconv.Itoa(port)}
	return z, z.run.Start(exec.Command("java", "-Xmx512m", "-cp", strings.Join(zooKeeperJars, ":"),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file))
}

// ready waits until the server serves; before that it answers without a mode.
func (z *zooKeeper) ready(ctx context.Context, e *ensemble) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return z.run.Await(ctx, func() error {
		reply, err := z.word("srvr")
		z.mode, e.version = field(reply, "Mode"), field(reply, "Zookeeper version")
		if z.mode == "" {
			return cmp.Or(err, errors.New("srvr: no mode"))
		}
		return nil
	})
}

// stop ends the servers and waits for their end.
func (e *ensemble) stop() {
	for _, z := range e.servers {
		_ = z.run.Kill() // it returns no error of a server that does not fork
	}
}

// session is the timeout that all libraries request. On a follower of ZooKeeper 3.8.0 a request
// sometimes hangs until the session's next packet, so it is shorter there.
func (e *ensemble) session() time.Duration {
	if len(e.servers) > 1 {
		return 6 * time.Second
	}
	return 10 * time.Second
}

// word sends one of the four-letter commands.
func (z *zooKeeper) word(word string) (string, error) {
	c, err := net.DialTimeout("tcp", z.addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// load is the servers' work so far. Only the server that a client is connected to counts its
// packets.
func (e *ensemble) load(context.Context) (load, error) {
	var l load
	for _, z := range e.servers {
		reply, err := z.word("mntr")
		if err != nil {
			return l, err
		}
		e.queries++
		for key, sum := range map[string]*int64{"zk_packets_received": &l.commands, "zk_response_bytes": &l.bytes} {
			_, rest, _ := strings.Cut(reply, "\n"+key+"\t")
			text, _, _ := strings.Cut(rest, "\n")
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return l, fmt.Errorf("mntr: %s: %w", key, err)
			}
			*sum += n
		}
		cpu, err := processCPU(z.run.PID())
		if err != nil {
			return l, err
		}
		l.cpu += cpu
	}
	l.commands -= e.queries
	return l, nil
}
