package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/internal/servers/mariadb"
	"github.com/holdfast-lock/holdfast/internal/servers/postgres"
)

// host is what the rows of one store run on.
type host interface {
	// engine returns the engine of one part of a row. setup are commands that come first.
	engine(p *scenario, setup []string) (engine, error)
	Close()
}

// starter starts what the rows of a store need.
type starter struct {
	missing func() error // what must be installed; nil: nothing
	start   func(ctx context.Context) (host, error)
}

// starters has every store of the rows.
var starters = map[Store]starter{
	Redis:    {redisMissing, startRedis},
	MySQL:    {mariaDBMissing, startMariaDB},
	Postgres: {postgresMissing, startPostgres},
	SQLite:   {func() error { return nil }, startSQLite},

	ZooKeeper: {zooKeeperMissing, startZooKeeper},
}

// redisHost is a Redis server: the lab's own, or the user's.
type redisHost struct {
	url string
	own *Server // nil: the server is the user's
}

func startRedis(ctx context.Context) (host, error) {
	s, err := Start(ctx)
	if err != nil {
		return nil, err
	}
	return &redisHost{s.URL(), s}, nil
}

func (h *redisHost) engine(p *scenario, _ []string) (engine, error) {
	p.url, p.userServer, p.rec.url = h.url, h.own == nil, h.url
	return redisEngine{}, nil
}

func (h *redisHost) Close() {
	if h.own != nil {
		h.own.Close()
	}
}

func mariaDBMissing() error {
	_, err := mariadb.Find()
	return missing(mariadb.Packages, err)
}

func postgresMissing() error {
	_, err := postgres.Find()
	return missing(postgres.Packages, err)
}

func missing(packages string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the lab needs %s: %w", driver.ErrUnavailable, packages, err)
}

// startMariaDB starts a server on a socket in a folder that only its user and root can enter, so
// that it needs no password and no port.
func startMariaDB(ctx context.Context) (host, error) {
	programs, err := mariadb.Find()
	if err != nil {
		return nil, missing(mariadb.Packages, err)
	}
	return startSQL(mySQLKind, mariadb.User, func(h *sqlHost) error {
		h.socket = h.account.Path("s")
		argv, err := h.install(ctx, programs.Install)
		if err != nil {
			return err
		}
		return h.serve(ctx, append(argv, "--skip-networking", "--socket="+h.socket, "--default-time-zone=+00:00",
			"--loose-innodb-flush-method=nosync"), // the data need not survive a crash of the machine
			func() error { return mariadb.Greets("unix", h.socket) })
	})
}

// startPostgres does the same.
func startPostgres(ctx context.Context) (host, error) {
	programs, err := postgres.Find()
	if err != nil {
		return nil, missing(postgres.Packages, err)
	}
	return startSQL(postgresKind, postgres.User, func(h *sqlHost) error {
		h.run.Forks, h.run.Quit = true, syscall.SIGINT
		h.socket = postgres.Socket(h.account, postgresPort)
		h.cleanup = func() { postgres.Unshare(h.account) }
		argv, err := h.install(ctx, programs.Install)
		if err != nil {
			return err
		}
		return h.serve(ctx, append(argv, postgres.Settings("listen_addresses=", "port="+postgresPort)...),
			func() error { return postgres.Welcomes("unix", h.socket, "postgres") })
	})
}

// startSQLite returns a folder for files.
func startSQLite(context.Context) (host, error) {
	return startSQL(sqliteKind, "", func(*sqlHost) error { return nil })
}

func startSQL(kind *sqlKind, user string, start func(*sqlHost) error) (host, error) {
	a, err := servers.NewAccount("holdfast-lab", user)
	if err != nil {
		return nil, fmt.Errorf("%w: a folder for %s: %w", driver.ErrUnavailable, kind.name, err)
	}
	h := &sqlHost{kind: kind, account: a, cleanup: func() {}}
	if err = start(h); err == nil && kind.create != "" {
		h.admin, err = kind.open(h, kind.first)
	}
	if err != nil {
		h.Close()
		err = fmt.Errorf("%w: %s cannot be started: %w", driver.ErrUnavailable, kind.name, err)
		if printed := strings.TrimSpace(h.run.Output(2000)); printed != "" {
			err = fmt.Errorf("%w: %s", err, printed)
		}
		return nil, err
	}
	return h, nil
}

// install creates the server's data. An installer starts programs that would outlive it, so an
// interrupt waits for it.
func (h *sqlHost) install(ctx context.Context, f func(context.Context, servers.Account, bool) ([]string, error)) (
	[]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return f(ctx, h.account, false)
}

// serve starts the server, and returns when it serves.
func (h *sqlHost) serve(ctx context.Context, argv []string, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd, err := h.account.Command(argv...)
	if err == nil {
		err = h.run.Start(cmd)
	}
	if err != nil {
		return err
	}
	return h.run.Await(ctx, ready)
}

// lazyHost is a host that the first row of its store starts.
type lazyHost struct {
	once sync.Once
	host host
	err  error
}

// Close ends the server, and removes its folder.
func (h *sqlHost) Close() {
	if h.admin != nil {
		_ = h.admin.Close()
	}
	_ = h.run.Kill() // an error names processes that have not ended yet
	h.cleanup()
	_ = os.RemoveAll(h.account.Dir) // the system removes temporary files that remain
}
