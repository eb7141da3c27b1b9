package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// server is the redis-server of this run: without persistence, on a free port of the loopback
// interface.
type server struct {
	addr    string
	version string
	run     servers.Server
	admin   *goredis.Client // not counted
}

func startServer(ctx context.Context) (*server, error) {
	path, err := servers.Find("redis-server")
	if err != nil {
		return nil, fmt.Errorf("the Redis scenarios need redis-server (or use -store sqlite): %w", err)
	}
	ports, err := servers.FreePorts(1)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(ports[0])
	s := &server{addr: "127.0.0.1:" + port}
	if err := s.run.Start(exec.Command(path, "--port", port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--maxclients", "4000", "--loglevel", "warning")); err != nil {
		return nil, err
	}
	s.admin = goredis.NewClient(&goredis.Options{Addr: s.addr, PoolSize: 1})
	if err := s.ready(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("redis-server did not start: %w\n%s", err, s.run.Output(mostLog))
	}
	return s, nil
}

// mostLog is how many bytes of a server's log an error contains.
const mostLog = 64 << 10

func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return s.run.Await(ctx, func() error {
		info, err := s.admin.Info(ctx, "server").Result()
		s.version = field(info, "redis_version")
		return err
	})
}

// stop ends the server and waits for its end.
func (s *server) stop() {
	_ = s.admin.Close()
	_ = s.run.Kill() // it returns no error of a server that does not fork
}

// flush empties the server, so that no measurement sees the keys of another.
func (s *server) flush(ctx context.Context) error { return s.admin.FlushAll(ctx).Err() }

// load is the server's work so far.
type load struct {
	// Including those in scripts; ZooKeeper: packets of clients; SQL: statements of clients.
	commands int64
	bytes    int64         // ZooKeeper: of the answers
	scripts  time.Duration // inside scripts: no parsing, no sockets
	cpu      time.Duration
}

func (s *server) load(ctx context.Context) (load, error) {
	info, err := s.admin.Info(ctx, "everything").Result()
	if err != nil {
		return load{}, err
	}
	var l load
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(line, ":calls=")
		if !ok || name == "cmdstat_info" {
			continue
		}
		calls, rest, _ := strings.Cut(rest, ",usec=")
		usec, _, _ := strings.Cut(rest, ",")
		n, cerr := strconv.ParseInt(calls, 10, 64)
		us, uerr := strconv.ParseInt(usec, 10, 64)
		if err := errors.Join(cerr, uerr); err != nil {
			return l, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		l.commands += n
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			l.scripts += time.Duration(us) * time.Microsecond
		}
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		sec, err := strconv.ParseFloat(field(info, name), 64)
		if err != nil {
			return l, fmt.Errorf("INFO: %s: %w", name, err)
		}
		l.cpu += time.Duration(sec * float64(time.Second))
	}
	return l, nil
}

// field finds "name:value" in the text of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
