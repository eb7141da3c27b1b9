package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// env is the machine, as a store sees it.
type env struct {
	now   func() int64 // nanoseconds
	wall  func() int64 // microseconds since 1970
	boot  func() (string, error)
	netFS func(dir string) (string, error)
	lstat func(path string) (os.FileInfo, error)
	idle  time.Duration // how long the row of an unused name stays

	// How long a closing process may have one of the store's files closed and another open.
	closing time.Duration

	place   func(dir string) (host.Place, error) // for Diagnose
	ownTime func() bool
}

var machine = env{
	now: host.Now, boot: host.BootID, netFS: host.NetworkFS, lstat: os.Lstat, idle: time.Minute, closing: 3 * time.Second,
	place: host.PlaceOf, ownTime: host.OwnTime,
	wall: func() int64 { return time.Now().UnixMicro() },
}

// store is one open file. All Backends of a process on one file share it: SQLite's file locks belong
// to the process, and sharing saves connections.
type store struct {
	env      env
	path     string // without symbolic links
	paths    [len(suffixes)]string
	files    [len(suffixes)]host.ID
	over     atomic.Bool // one of files is no longer at its path
	ending   sync.Once
	driver   string
	db       *sql.DB
	w, r     *conn // for write transactions; for reads
	gate     *host.Gate
	notifier *host.Notifier

	contended map[string]bool // names known to be contended; guarded by w's gate

	refs int // guarded by opened.mu

	mu       sync.Mutex
	run      string              // folder of sockets and session files; "": not needed so far
	sessions map[string]*session // of this process

	upkeep upkeep
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

var opened struct {
	mu     sync.Mutex
	stores []*store
}

func openStore(path string, cfg *Config) (*store, error) {
	name := cfg.Driver
	if name == "" {
		name = "sqlite"
	}
	switch {
	case path == "" || strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("%w path %q: it must name a file, and have no zero byte", driver.ErrInvalid, path)
	case !slices.Contains(sql.Drivers(), name):
		return nil,
			fmt.Errorf(
				"%w: database/sql has no driver named %q; the program must import one, such as _ \"modernc.org/sqlite\" (named \"sqlite\")", driver.ErrInvalid, name)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w path: %w", driver.ErrInvalid, err)
	}
	st := &store{env: machine, path: abs, driver: name, sessions: map[string]*session{}, contended: map[string]bool{}}
	if cfg.env != nil {
		st.env = *cfg.env
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if err := st.resolve(); err != nil {
		return nil, fault(err)
	}
	if o, err := st.shared(); o != nil || err != nil {
		return o, err
	}
	if err := st.openFile(); err != nil {
		return nil, errors.Join(fault(err), st.closeDB())
	}
	if st.notifier, err = host.NewNotifier(); err != nil {
		return nil, errors.Join(fault(err), st.closeDB())
	}
	st.refs = 1
	opened.stores = append(opened.stores, st)
	st.startUpkeep()
	return st, nil
}

func (st *store) release() error {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if st.refs--; st.refs > 0 {
		return nil
	}
	opened.stores = slices.DeleteFunc(opened.stores, func(o *store) bool { return o == st })
	st.stop()
	st.wg.Wait()
	st.dropFolder()
	return errors.Join(st.closeDB(), st.notifier.Close())
}

// shared returns this process's store for the file; nil: none. The process must not open the file a
// second time: closing that would drop SQLite's locks.
func (st *store) shared() (*store, error) {
	for i, path := range st.paths {
		id, err := host.Identify(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fault(err)
		}
		for _, o := range opened.stores {
			if !id.Same(o.files[i]) {
				continue
			}
			if o.path == st.path && !o.over.Load() {
				o.refs++
				return o, nil
			}
			return nil, fmt.Errorf("%w: this process has the file open by another path, or as it was before it was replaced; %s",
				driver.ErrRefused, folderNotFile)
		}
	}
	return nil, nil
}

func (st *store) dsn(query string) string {
	p := filepath.ToSlash(st.path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x
	}
	return (&url.URL{Scheme: "file", Path: p, RawQuery: query}).String()
}

func (st *store) openDB() error {
	var err error
	if _, err = st.folder(); err != nil {
		return err
	}
	if st.db, err = sql.Open(st.driver, st.dsn("")); err != nil {
		return err
	}
	st.w, st.r = newConn(), newConn()
	for _, c := range []*conn{st.w, st.r} {
		ctx, cancel := context.WithTimeout(context.Background(), busyLimit)
		defer cancel()
		if err := retryBusy(ctx, func() error { return st.connect(c) }); err != nil {
			return err
		}
		if c == st.w {
			if err := retryBusy(ctx, st.create); err != nil {
				return err
			}
			if err := retryBusy(ctx, st.walMode); err != nil {
				return err
			}
			if err := retryBusy(ctx, st.enterBoot); err != nil {
				return err
			}
		}
	}
	// The first read opens the log.
	err = retryBusy(context.Background(), func() error {
		_, err := st.r.get(qSwept, nil, new([]byte))
		return err
	})
	if err != nil {
		return err
	}
	host.Reserve(st.paths[iLog], logReserve)
	st.w.queue = st.gate
	return st.fix()
}

// logReserve is the space reserved for the log, for times when the disk is full. SQLite locks
// nothing in the log, so other code may open it.
const logReserve = 256 << 10

func newConn() *conn { return &conn{gate: make(chan struct{}, 1), used: func() {}} }

func (st *store) connect(c *conn) error {
	bg := context.Background()
	if c.c == nil {
		sc, err := st.db.Conn(bg)
		if err != nil {
			return err
		}
		c.c = sc
	}
	for _, p := range []string{`PRAGMA busy_timeout = 0`, `PRAGMA synchronous = NORMAL`,
		`PRAGMA wal_autocheckpoint = 10000`} {
		if _, err := c.c.ExecContext(bg, p); err != nil {
			return err
		}
	}
	return nil
}

func (st *store) closeDB() (err error) {
	for _, c := range []*conn{st.r, st.w} {
		if c != nil && c.c != nil {
			c.gate <- struct{}{} // Pause waits until db is closed, too
			defer func() { <-c.gate }()
			err = errors.Join(err, c.close())
			c.c = nil
		}
	}
	if st.db != nil {
		err = errors.Join(err, st.db.Close())
	}
	if st.gate != nil {
		err = errors.Join(err, st.gate.Close())
	}
	return err
}
