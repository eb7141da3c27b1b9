package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// A database in WAL mode has three files: SQLite finds the log and the shared memory by the path of
// the main file. A process that opens the main file by another path has two others, and does not
// see the grants. So the store opens only if all processes that use the main file have the same
// three files. It ends when one of them is gone.
var suffixes = [...]string{"", "-wal", "-shm"}

const (
	iLog = 1 + iota
	iShared
)

// The bytes that SQLite locks while a database in WAL mode is open: in the main file those of
// readers, in the shared memory the byte that shows use.
const (
	readersFirst, readersLen = 0x40000000 + 2, 510
	usedFirst, usedLen       = 128, 1
)

const folderNotFile = "all processes must reach the file by one name in one folder: mount or link the folder, never the file"

// resolve creates the folder and makes st.path the real path, without symbolic links.
func (st *store) resolve() error {
	if err := os.MkdirAll(filepath.Dir(st.path), 0o700); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(st.path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := st.env.lstat(st.path); lerr == nil {
			// Another process may have created the file since.
			if real, err = filepath.EvalSymlinks(st.path); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: a symbolic link that leads nowhere", driver.ErrRefused)
			}
		} else {
			var dir string
			dir, err = filepath.EvalSymlinks(filepath.Dir(st.path))
			real = filepath.Join(dir, filepath.Base(st.path))
		}
	}
	if err != nil {
		return err
	}
	st.path = real
	for i, s := range suffixes {
		st.paths[i] = st.path + s
	}
	switch kind, err := st.env.netFS(filepath.Dir(st.path)); {
	case err != nil:
		return err
	case kind != "":
		return fmt.Errorf(
			"%w path: it is on a %s file system, where SQLite's locks and shared memory do not hold; use a store with a server (Redis, PostgreSQL, ...) instead", driver.ErrInvalid, kind)
	}
	return nil
}

// vet refuses anything but a regular file, and a file with a second path.
func (st *store) vet() error {
	fi, err := os.Stat(st.path)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", driver.ErrRefused)
	}
	links, err := host.Links(st.path)
	if err == nil && links > 1 {
		st.removeHalf(fi)
		links, err = host.Links(st.path)
	}
	if err != nil {
		return err
	}
	if links > 1 {
		return fmt.Errorf("%w: the file has %d hard links; %s", driver.ErrRefused, links, folderNotFile)
	}
	mounted, err := host.Mounted(st.path)
	if err == nil && mounted {
		err = fmt.Errorf("%w: the file is a mount point; %s", driver.ErrRefused, folderNotFile)
	}
	return err
}

// removeHalf removes the file's temporary name, if the process that built it died before removing
// that: see build.
func (st *store) removeHalf(fi os.FileInfo) {
	names, _ := filepath.Glob(globSafe(st.path) + ".new-*")
	for _, name := range names {
		if other, err := os.Lstat(name); err == nil && os.SameFile(fi, other) {
			os.Remove(name)
		}
	}
}

// alone checks that no other process uses a part of the store without the rest. The caller has the
// gate. So a half-open store is either just closing, or stays so.
func (st *store) alone() error {
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		what, err := st.torn()
		if err != nil || what == "" {
			return err
		}
		if time.Since(begun) > st.env.closing {
			return fmt.Errorf("%w: %s; end all processes that use it first; %s", driver.ErrRefused, what, folderNotFile)
		}
	}
}

// torn returns which part other processes use without the rest; "": none.
func (st *store) torn() (string, error) {
	file, err := host.Locked(st.path, readersFirst, readersLen)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	shared, err := host.Locked(st.paths[iShared], usedFirst, usedLen)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	switch {
	case file && !shared:
		return "another process has this file open by another path, or its -shm file was removed or replaced", nil
	case shared && !file:
		return "this file is not the one that another process has open: that was removed or replaced", nil
	case file:
		if _, err := os.Lstat(st.paths[iLog]); errors.Is(err, fs.ErrNotExist) {
			return "its -wal file was removed while another process has it open", nil
		}
	}
	return "", nil
}

// clearPlace removes remains of an earlier file before a new one is built. It refuses while a
// process still uses the earlier file.
func (st *store) clearPlace() error {
	if used, err := host.Locked(st.paths[iShared], usedFirst, usedLen); err == nil && used {
		return fmt.Errorf("%w: the file was removed, and another process still has it open; end it first", driver.ErrRefused)
	}
	entries, _ := os.ReadDir(st.path + ".run")
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "s-") {
			continue
		}
		life, file := host.Probe(filepath.Join(st.path+".run", e.Name()), 0)
		if file != nil {
			file.Close(false)
		}
		if life == host.Alive {
			return fmt.Errorf("%w: the file was removed, and a process that used it is alive (%s.run/%s); end it first",
				driver.ErrRefused, st.path, e.Name())
		}
	}
	for _, path := range st.paths[iLog:] {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// fix records the identities of the store's files. Both connections have them open.
func (st *store) fix() (err error) {
	for i, path := range st.paths {
		if st.files[i], err = host.Identify(path); err != nil {
			return err
		}
	}
	return nil
}

// present reports whether a file was removed or replaced. Other processes could then create another
// store at the path, and two holders would have one lock. So it ends all sessions of this process.
func (st *store) present() error {
	if st.over.Load() {
		st.end() // the call that found it out may still be at it
		return errReplaced
	}
	for i := range st.paths {
		id, err := host.Identify(st.paths[i])
		switch {
		case err == nil && id.Same(st.files[i]):
			continue
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fault(err)
		}
		st.end()
		return errReplaced
	}
	return nil
}

var errReplaced = fmt.Errorf("%w: the file, or its -wal or -shm file, was removed, moved or replaced while it was open",
	driver.ErrRefused)

// end ends all sessions. When it returns, all have been notified, whoever ended them.
func (st *store) end() {
	st.ending.Do(func() {
		st.over.Store(true)
		st.mu.Lock()
		all := make([]*session, 0, len(st.sessions))
		for _, s := range st.sessions {
			all = append(all, s)
		}
		st.mu.Unlock()
		for _, s := range all {
			_ = s.void()
		}
	})
}

// openFile opens the file, and builds it first if it does not exist. It holds the gate meanwhile.
func (st *store) openFile() error {
	_, err := os.Lstat(st.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if !missing { // create nothing next to a file that is not ours
		if err = st.vet(); err == nil {
			err = st.identify()
		}
		if err != nil {
			return err
		}
	}
	if st.gate, err = host.OpenGate(st.path + "-gate"); err != nil {
		return err
	}
	wait := busyLimit / 2
	if missing { // another may be building it, with several syncs
		wait = busyLimit
	}
	had := st.gate.Lock(context.Background(), wait)
	if had {
		defer st.gate.Unlock()
	}
	if _, err := os.Lstat(st.path); errors.Is(err, fs.ErrNotExist) {
		if !had {
			return fmt.Errorf("%w: another process is building the file, and makes no progress", driver.ErrUnavailable)
		}
		if err := st.clearPlace(); err != nil {
			return err
		}
		if err := st.build(); err != nil {
			return err
		}
	}
	if missing {
		if err = st.vet(); err == nil {
			err = st.identify()
		}
		if err != nil {
			return err
		}
	}
	if _, err := host.Writable(st.path); err != nil {
		return err
	}
	if err := st.alone(); err != nil {
		return err
	}
	return st.openDB()
}
