package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// sqlKind is a kind of database server: how to start, query and connect to it.
type sqlKind struct {
	store   string // as in -store
	what    string
	account string // the account it runs as, if this program is root's
	needs   string // the package with its programs
	dialect sqllock.Dialect

	// Programs that it needs; the last is the server.
	programs []string

	// install are the arguments of the first program, which creates the files in data; serve are
	// those of the last. The port is of the loopback interface. Both sync commits to the disk
	// before they answer, as by default.
	install func(data string) []string
	serve   func(dir, data string, port int) []string
	quit    syscall.Signal // ends it, with its processes

	// pool connects as an application does, and counts with w. A peer's pool has the options for
	// one round trip per statement.
	pool func(addr string, w *wire, peer bool) *sql.DB

	setUp   []string // run once
	version string   // queries
	count   string   // statements of clients so far
	others  string   // number of other clients
}

// sqlServer is a database server of this run, on a free port of the loopback interface. Its data is
// in the folder for temporary files.
type sqlServer struct {
	*sqlKind
	addr    string
	release string // its version
	servers.Account
	run     servers.Server
	admin   *sql.DB // not counted
	queries int64   // queries of load so far, which the server counts, too
}

// maxConnections is enough for a connection of each of 1,001 contenders, and for our own.
const maxConnections = 1100

// find returns the paths of the programs, or why it cannot start.
func (k *sqlKind) find() (paths []string, err error) {
	for _, name := range k.programs {
		path, err := servers.Find(name, "/usr/sbin", "/usr/lib/postgresql/*/bin")
		if err == nil { // PATH may have links to only one of a version's programs
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			return nil, fmt.Errorf("%s needs Debian's %s: %w", k.what, k.needs, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// missing returns why it cannot start.
func (k *sqlKind) missing() error { _, err := k.find(); return err }

func startSQL(ctx context.Context, k *sqlKind) (s *sqlServer, err error) {
	paths, err := k.find()
	if err != nil {
		return nil, err
	}
	ports, err := servers.FreePorts(1)
	if err != nil {
		return nil, err
	}
	s = &sqlServer{sqlKind: k, addr: "127.0.0.1:" + strconv.Itoa(ports[0]), run: servers.Server{Quit: k.quit}}
	if s.Account, err = servers.NewAccount("holdfast-bench-"+k.store+"-", k.account); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s did not start: %w\n%s", k.what, err, s.run.Output(mostLog))
			s.stop()
			s = nil
		}
	}()
	data := s.Path("data")
	install, err := s.Command(append([]string{paths[0]}, k.install(data)...)...)
	if err != nil {
		return s, err
	}
	if _, err = servers.Run(ctx, install); err != nil {
		return s, err
	}
	cmd, err := s.Command(append(paths[len(paths)-1:], k.serve(s.Dir, data, ports[0])...)...)
	if err != nil {
		return s, err
	}
	if err = s.run.Start(cmd); err != nil {
		return s, err
	}
	s.admin = k.pool(s.addr, new(wire), true)
	s.admin.SetMaxOpenConns(1)
	return s, s.ready(ctx)
}

func (s *sqlServer) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.run.Await(ctx, func() error {
		return s.admin.QueryRowContext(ctx, s.sqlKind.version).Scan(&s.release)
	}); err != nil {
		return err
	}
	return s.exec(ctx, s.setUp...)
}

func (s *sqlServer) exec(ctx context.Context, statements ...string) error {
	for _, text := range statements {
		if _, err := s.admin.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// stop ends the server, waits for its end, and removes its files.
func (s *sqlServer) stop() {
	if s.admin != nil {
		_ = s.admin.Close()
	}
	late := time.AfterFunc(20*time.Second, func() { _ = s.run.Kill() })
	_, _ = s.run.Stop(), late.Stop()
	_ = os.RemoveAll(s.Dir)
}

// clear creates the tables again, once no client is connected: a server may notice the end of a
// waiter late.
func (s *sqlServer) clear(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var n int
		if err := s.admin.QueryRowContext(limited, s.others).Scan(&n); err != nil {
			return fmt.Errorf("clients of the previous measurement: %w", err)
		}
		if n == 0 {
			break
		}
		pause(limited, 5*time.Millisecond)
	}
	for _, table := range []string{"hf_meta", "hf_lock", "hf_done", "hf_bell", "hf_history", naiveTable, pglockTable} {
		if err := s.exec(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
			return err
		}
	}
	return errors.Join(sqllock.Init(ctx, s.admin, s.dialect), s.exec(ctx, naiveSchema[s.store]))
}

// load is the server's work so far.
func (s *sqlServer) load(ctx context.Context) (l load, err error) {
	if err := s.admin.QueryRowContext(ctx, s.count).Scan(&l.commands); err != nil {
		return l, fmt.Errorf("%s: %w", s.count, err)
	}
	s.queries++
	l.commands -= s.queries
	l.cpu, err = familyCPU(s.run.PID())
	return l, err
}

// disk measures how long the server's disk takes to write and sync one block of an existing file, n
// times or for d, whichever is first. Each time follows a pause. Every durable commit waits for
// that.
func (s *sqlServer) disk(n int, d, idle time.Duration) (h *hist, err error) {
	f, err := os.CreateTemp(s.Dir, "disk-")
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}()
	const block, blocks = 4096, 256
	if _, err := f.Write(make([]byte, block*blocks)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	h = new(hist)
	data := make([]byte, block)
	for i, start := 0, time.Now(); i < n && time.Since(start) < d; i++ {
		if idle > 0 {
			time.Sleep(idle)
		}
		data[0] = byte(i)
		t := time.Now()
		_, werr := f.WriteAt(data, int64(i%blocks)*block)
		if err := cmp.Or(werr, syncData(f)); err != nil {
			return nil, err
		}
		h.Record(time.Since(t))
	}
	return h, nil
}
