package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/internal/servers/zookeeper"
	"github.com/holdfast-lock/holdfast/open"
)

// zkServer is a ZooKeeper server of the lab, on a free port of the loopback interface, with a
// folder of its own under TMPDIR. It ends with Close, and on Linux also with the process that
// started it.
type zkServer struct {
	addr string
	dir  string

	run servers.Server
}

// zkStartLimit bounds how long the JVM may take until ZooKeeper answers.
const zkStartLimit = time.Minute

// zkExpiry is the session timeout of the algorithms' clients. No session may expire on its own:
// that needs longer than a part of a row may take. The lab ends sessions itself.
const zkExpiry = 2 * rowLimit

func zooKeeperMissing() error {
	_, err := exec.LookPath("java")
	if err == nil {
		_, err = zookeeper.Jars()
	}
	return missing(zookeeper.Packages, err)
}

func startZooKeeper(ctx context.Context) (host, error) {
	if err := zooKeeperMissing(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdfast-lab")
	if err != nil {
		return nil, fmt.Errorf("%w: a folder for ZooKeeper: %w", driver.ErrUnavailable, err)
	}
	s := &zkServer{dir: dir}
	const tries = 5 // another program may take the free port first
	for range tries {
		if err = s.start(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: ZooKeeper cannot be started: %w: %s", driver.ErrUnavailable, err,
			strings.TrimSpace(s.run.Output(2000)))
	}
	return s, nil
}

// engine implements host. setup are commands of a session.
func (s *zkServer) engine(p *scenario, setup []string) (engine, error) {
	p.url, p.rec.url = "zookeeper://"+s.addr, ""
	e := &zkEngine{addr: s.addr}
	for _, command := range setup {
		answer, err := e.own(p).send(p.ctx, command)
		if err == nil && strings.HasPrefix(answer, "error") {
			err = errors.New(answer)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
	}
	return e, nil
}

// start starts the process and waits until it serves.
func (s *zkServer) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, zkStartLimit)
	defer cancel()
	ports, err := servers.FreePorts(1)
	if err != nil {
		return err
	}
	s.addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	argv, err := zookeeper.Command(s.dir,
		append(zookeeper.At(s.addr), fmt.Sprintf("maxSessionTimeout=%d", zkExpiry.Milliseconds()))...)
	if err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = s.dir, open.Environ()
	if err := s.run.Start(cmd); err != nil {
		return err
	}
	err = s.run.Await(ctx, func() error { return s.serves(ctx) })
	if err != nil {
		_ = s.run.Kill() // it returns no error of a server that does not fork
	}
	return err
}

// serves asks the server once whether it serves. It ends early with ctx.
func (s *zkServer) serves(ctx context.Context) error {
	c, err := zkDial(s.addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_, err = zookeeper.Mode(c)
	return err
}

// zkDial opens a connection for one exchange without a session.
func zkDial(addr string) (net.Conn, error) {
	const limit = 20 * time.Second // a busy machine may stand still for seconds
	c, err := net.DialTimeout("tcp", addr, limit)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(limit))
	}
	return c, err
}

// Close ends the server and removes its folder.
func (s *zkServer) Close() {
	_ = s.run.Kill()
	_ = os.RemoveAll(s.dir) // the system removes temporary files that remain
}
