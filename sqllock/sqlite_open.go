package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// env is what a store takes from the machine.
type env struct {
	now   func() int64 // nanoseconds
	wall  func() int64 // microseconds since 1970
	boot  func() (string, error)
	netFS func(dir string) (string, error)
	idle  time.Duration // how long the row of an unused name stays

	place   func(dir string) (host.Place, error) // for Diagnose
	ownTime func() bool
}

var machine = env{
	now: host.Now, boot: host.BootID, netFS: host.NetworkFS, idle: time.Minute, place: host.PlaceOf, ownTime: host.OwnTime,
	wall: func() int64 { return time.Now().UnixMicro() },
}

// store is one open file. All SQLites of a process on the same file share it: SQLite's file
// locks belong to the process, and sharing spares the connections.
type store struct {
	env    env
	path   string
	file   os.FileInfo // which file it is, should another come to stand at path
	run    string      // folder of bells and session files
	driver string
	db     *sql.DB
	w, r   *conn // for write transactions, for reads
	ringer *host.Ringer

	crowded map[string]bool // names that others wait for, as far as known; under w's gate

	refs int // under opened.mu

	mu       sync.Mutex
	sessions map[string]*session // of this process

	upkeep upkeep
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

var opened struct {
	mu     sync.Mutex
	stores []*store
}

func openStore(path string, cfg *SQLiteConfig) (*store, error) {
	name := cfg.Driver
	if name == "" {
		name = "sqlite"
	}
	switch {
	case path == "" || strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("%w path %q", driver.ErrInvalid, path)
	case !slices.Contains(sql.Drivers(), name):
		return nil, fmt.Errorf("%w: database/sql has no driver named %q; the program has to import one, such as _ \"modernc.org/sqlite\" (named \"sqlite\")", driver.ErrInvalid, name)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w path: %w", driver.ErrInvalid, err)
	}
	st := &store{env: machine, path: abs, driver: name, sessions: map[string]*session{}, crowded: map[string]bool{}}
	if cfg.env != nil {
		st.env = *cfg.env
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if err := st.prepareFile(); err != nil {
		return nil, fault(err)
	}
	for _, o := range opened.stores {
		if os.SameFile(o.file, st.file) {
			o.refs++
			return o, nil
		}
	}
	if err := st.openDB(); err != nil {
		return nil, errors.Join(fault(err), st.closeDB())
	}
	if st.ringer, err = host.NewRinger(); err != nil {
		return nil, errors.Join(fault(err), st.closeDB())
	}
	st.refs = 1
	opened.stores = append(opened.stores, st)
	st.startUpkeep()
	return st, nil
}

// release gives back one reference.
func (st *store) release() error {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if st.refs--; st.refs > 0 {
		return nil
	}
	opened.stores = slices.DeleteFunc(opened.stores, func(o *store) bool { return o == st })
	st.stop()
	st.wg.Wait()
	return errors.Join(st.closeDB(), st.ringer.Close())
}

// prepareFile creates what is missing and looks at what is there, without opening a
// file that SQLite may have open in this process: closing it would drop SQLite's locks.
func (st *store) prepareFile() error {
	dir := filepath.Dir(st.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	switch kind, err := st.env.netFS(dir); {
	case err != nil:
		return err
	case kind != "":
		return fmt.Errorf("%w path: it is on a %s file system, where SQLite's locks and shared memory do not hold; use a store with a server (Redis, PostgreSQL, ...) instead", driver.ErrInvalid, kind)
	}
	if _, err := os.Stat(st.path); errors.Is(err, fs.ErrNotExist) {
		if err := st.build(); err != nil {
			return err
		}
	}
	if st.file, err = os.Stat(st.path); err != nil {
		return err
	}
	if !st.file.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", driver.ErrRefused)
	}
	return nil
}

// runDir is the folder of bells and session files: beside the file, or if the paths of
// sockets would be too long for the system, a folder of temporary files. Each session's
// addresses are in the table, so processes need not agree on one.
func runDir(path string) (string, error) {
	dir := path + ".run"
	if len(dir)+1+nameLen > host.MaxPath {
		sum := sha256.Sum256([]byte(path))
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-%d-%s", os.Getuid(), hex.EncodeToString(sum[:8])))
		if len(dir)+1+nameLen > host.MaxPath {
			return "", fmt.Errorf("%w path: it is too long for the sockets beside it, and so is the folder for temporary files, %s", driver.ErrInvalid, os.TempDir())
		}
	}
	return dir, host.PrivateDir(dir)
}

func (st *store) dsn(query string) string {
	p := filepath.ToSlash(st.path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x
	}
	return (&url.URL{Scheme: "file", Path: p, RawQuery: query}).String()
}

func (st *store) openDB() error {
	if err := st.identify(); err != nil {
		return err
	}
	var err error
	if st.run, err = runDir(st.path); err != nil {
		return err
	}
	if st.db, err = sql.Open(st.driver, st.dsn("")); err != nil {
		return err
	}
	for _, c := range []**conn{&st.w, &st.r} {
		*c = &conn{gate: make(chan struct{}, 1), used: func() {}}
		ctx, cancel := context.WithTimeout(context.Background(), busyLimit)
		defer cancel()
		if err := retryBusy(ctx, func() error { return st.connect(*c) }); err != nil {
			return err
		}
		if c == &st.w {
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
	st.w.queue, err = host.OpenGate(st.path + "-gate")
	return err
}

func (st *store) connect(c *conn) error {
	bg := context.Background()
	if c.c == nil {
		sc, err := st.db.Conn(bg)
		if err != nil {
			return err
		}
		c.c = sc
	}
	for _, p := range []string{`PRAGMA busy_timeout = 0`, `PRAGMA synchronous = NORMAL`, `PRAGMA wal_autocheckpoint = 10000`} {
		if _, err := c.c.ExecContext(bg, p); err != nil {
			return err
		}
	}
	return nil
}

func (st *store) closeDB() (err error) {
	for _, c := range []*conn{st.r, st.w} {
		if c != nil && c.c != nil {
			c.gate <- struct{}{}
			err = errors.Join(err, c.close())
			if c.queue != nil {
				err = errors.Join(err, c.queue.Close())
			}
			c.c = nil
			<-c.gate
		}
	}
	if st.db != nil {
		err = errors.Join(err, st.db.Close())
	}
	return err
}

// present reports a file that was removed or replaced: who opens the path now gets
// another, and two would hold one lock.
func (st *store) present() error {
	fi, err := os.Stat(st.path)
	if err == nil && os.SameFile(fi, st.file) {
		return nil
	}
	return fmt.Errorf("%w: the file was removed or replaced while it was open", driver.ErrRefused)
}
