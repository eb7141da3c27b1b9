package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

var _ driver.Diagnoser = (*Backend)(nil)

// Diagnose implements [driver.Diagnoser]. It reads the whole file, which is small unless many names
// are in use.
func (b *Backend) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	st := b.st
	if err := st.present(); err != nil {
		return nil, err
	}
	var f doctor.Findings
	if err := st.place(&f); err != nil {
		return f.List, fault(err)
	}
	if err := st.writers(&f); err != nil {
		return f.List, fault(err)
	}
	if err := st.boots(&f); err != nil {
		return f.List, fault(err)
	}
	if err := st.content(ctx, &f); err != nil {
		return f.List, err
	}
	slowest, err := doctor.Slowest(ctx, 10, func(ctx context.Context) error {
		_, err := b.Inspect(ctx, "holdfast doctor")
		return err
	})
	if err != nil {
		return f.List, err
	}
	f.Latency("sqlite.latency", slowest, 10, ttl)
	return f.List, nil
}

// place checks the file system. Open refuses network file systems.
func (st *store) place(f *doctor.Findings) error {
	const kind, space, little = "sqlite.file-system", "sqlite.space", 16 << 20
	p, err := st.env.place(filepath.Dir(st.path))
	switch {
	case err != nil:
		return err
	case p.Kind == "":
		f.Add(driver.Finding{Code: kind, Severity: driver.Unclear, Found: "the kind of file system is unknown on this system",
			Why: "on a file system that several machines share, SQLite's locks and shared memory do not work",
			Do:  "check that the file is on a disk of this machine"})
		return nil
	case p.Kind == "fuse":
		f.Add(driver.Finding{Code: kind, Severity: driver.Unclear, MayEndanger: true,
			Found: "the file is on a file system that a program provides (FUSE)",
			Why:   "its storage is unknown; with most that use other machines (sshfs, object stores) SQLite's locks do not work",
			Do:    "move the file to a disk of this machine (--store sqlite:PATH)"})
	case p.Kind == "overlay":
		f.Add(driver.Finding{Code: kind, Severity: driver.Unclear,
			Found: "the file is in the file system of a container (overlay)",
			Why:   "only processes of this container share it; other containers have their own file, and a new container starts without one",
			Do:    "if containers are to share locks, put the file into a volume that all of them mount, or use a store with a server"})
	default:
		f.Fine(kind, "the file is on a file system of this machine (%s)", p.Kind)
	}
	if p.Free < little {
		f.Add(driver.Finding{Code: space, Severity: driver.Slows,
			Found: fmt.Sprintf("%d KiB are free on the file system", p.Free>>10),
			Why:   "when it is full no lock can be taken or renewed: holders lose their leases, and are notified in time",
			Do:    "free some space, or move the file"})
		return nil
	}
	f.Fine(space, "%d MiB are free on the file system", p.Free>>20)
	return nil
}

// writers checks who else may change or replace the file.
func (st *store) writers(f *doctor.Findings) error {
	const code = "sqlite.permissions"
	if runtime.GOOS == "windows" { // its modes say little
		return nil
	}
	file, err := os.Stat(st.path)
	if err != nil {
		return err
	}
	dir, err := os.Stat(filepath.Dir(st.path))
	if err != nil {
		return err
	}
	const others = 0o022
	switch {
	case dir.Mode().Perm()&others != 0 && dir.Mode()&os.ModeSticky == 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("other users may write to the folder (its mode is %o)", dir.Mode().Perm()),
			Why:   "they can remove or replace the file: a process that opens it then gets another lock of the same name",
			Do:    "chmod go-w " + filepath.Dir(st.path)})
	case file.Mode().Perm()&others != 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("other users may write to the file (its mode is %o)", file.Mode().Perm()),
			Why:   "other programs' writes can end or give away locks", Do: "chmod go-w " + st.path})
	default:
		f.Fine(code, "only its owner may write to the file (mode %o) and replace it (the folder's mode is %o)",
			file.Mode().Perm(), dir.Mode().Perm())
	}
	return nil
}

// boots checks the clock and the boot ID.
func (st *store) boots(f *doctor.Findings) error {
	if _, err := st.env.boot(); err != nil {
		return err
	}
	f.Fine("sqlite.boot", "the machine's boots have different IDs")
	if st.env.ownTime() {
		f.Add(driver.Finding{Code: "sqlite.clock", Severity: driver.Unclear, MayEndanger: true,
			Found: "this process is in a time namespace, which has its own time since boot",
			Why:   "leases use that clock: processes outside the namespace that use the same file see leases end earlier or later",
			Do:    "run all processes that share the file in one time namespace (unshare without -T), or use a store with a server"})
		return nil
	}
	f.Fine("sqlite.clock", "all processes of this machine have the same clock, which nobody can set")
	return nil
}

// content checks the file's content and the files next to it.
func (st *store) content(ctx context.Context, f *doctor.Findings) error {
	var mode, check string
	err := st.r.with(ctx, func() error {
		if err := st.r.c.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil {
			return err
		}
		return st.r.c.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&check)
	})
	if err != nil {
		return err
	}
	if mode == "wal" {
		f.Fine("sqlite.journal", "the journal mode is wal")
	} else {
		f.Add(driver.Finding{Code: "sqlite.journal", Severity: driver.Slows, Found: "the journal mode is " + mode,
			Why: "readers and writers wait for each other",
			Do:  "find out what changed it; the next process that opens the file changes it back"})
	}
	if check == "ok" {
		f.Fine("sqlite.integrity", "the file is intact")
	} else {
		f.Add(driver.Finding{Code: "sqlite.integrity", Severity: driver.Endangers, Found: "the file is damaged: " + check,
			Why: "grants may be lost",
			Do:  "end all processes that use it, remove it with its -wal and -shm files, and check the disk"})
	}
	const long = 64 << 20
	wal := int64(0)
	if fi, err := os.Stat(st.path + "-wal"); err == nil {
		wal = fi.Size()
	}
	half, _ := filepath.Glob(globSafe(st.path) + ".new-*")
	switch {
	case wal > long:
		f.Add(driver.Finding{Code: "sqlite.leftovers", Severity: driver.Slows,
			Found: fmt.Sprintf("the write-ahead log has %d MiB", wal>>20),
			Why:   "every reader searches it: a process reads the file all the time, or was stopped while reading",
			Do:    "find the processes that have the file open (fuser), and end those that should not"})
	case len(half) > 0:
		f.Fine("sqlite.leftovers",
			"processes that died while building the file left %d files (%s.new-*), which may be removed", len(half), st.path)
	default:
		f.Fine("sqlite.leftovers", "there are no leftover files")
	}
	return nil
}

// globSafe returns path as a pattern that matches only path.
func globSafe(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
