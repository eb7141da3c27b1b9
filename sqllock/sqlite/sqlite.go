// Package sqlite keeps the locks of one machine in a SQLite file, with no server.
//
// It uses database/sql and links no SQLite driver itself: the program imports one, such as
//
//	import _ "modernc.org/sqlite"
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Config configures an SQLite store. The zero value and nil work.
type Config struct {
	// Driver is the name of the program's SQLite driver in database/sql; empty means "sqlite", the
	// name of modernc.org/sqlite.
	Driver string

	env *env // replaced by tests
}

// Backend is a lock table in one file, shared by all processes of one machine. It is a
// [driver.Backend]; its methods may be called concurrently.
//
// The transaction that releases a lock grants it to the next waiter, and a datagram notifies that
// waiter. Each process keeps a file lock, which the kernel drops when the process is killed. Its
// locks then go to waiters within about 100 ms. The leases of a hanging process expire.
//
// Leases use the clock of the boot (Linux, macOS), which nobody can set and which counts suspend; a
// reboot ends them all. Tokens keep growing over a reboot and a power loss, even if the wall clock
// goes back meanwhile.
type Backend struct {
	st   *store
	once sync.Once
	mu   sync.Mutex
	open map[*session]bool
	shut bool

	keepLeases atomic.Bool
}

var _ driver.Backend = (*Backend)(nil)

// Open opens the store at path and creates it (mode 0600, missing folders 0700) unless it
// exists. The file must be holdfast's own. Next to it are SQLite's own -wal and -shm files, and a
// folder path.run through which processes signal each other.
//
// Errors: driver.ErrInvalid (no such SQLite driver, an empty path, a network file system),
// driver.ErrRefused (no permission, read-only, not a file of holdfast, another version of the
// schema: such a file stays unchanged), driver.ErrUnavailable (a full disk, a file that stays
// locked). It needs no ctx: opening takes at most 5 seconds.
func Open(path string, cfg *Config) (*Backend, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	st, err := openStore(path, cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlite store %s: %w", path, err)
	}
	return &Backend{st: st, open: map[*session]bool{}}, nil
}

// KeepLeases makes the locks of sessions that are opened from now on last until their leases end,
// also if this process is killed. It is for a process whose leases others trust, such as a server of
// package httpapi: they may not know that it is dead. Call it before holdfast.New.
func (b *Backend) KeepLeases() { b.keepLeases.Store(true) }

// Presence returns files whose locks show other processes that this one is alive, one for each session
// that is open now: holdfast.New opens one. Give them to a child (exec.Cmd.ExtraFiles), and close them
// when it has started. If this process then ends without Close, however it ends, its locks last until
// the child has ended, and all that inherited the files from the child; but no longer than their leases.
// So a child can end the work of this process first. After Release or Close the child keeps nothing.
// Systems without such files return none. Presence may be called at any time, and concurrently.
func (b *Backend) Presence() ([]*os.File, error) {
	b.mu.Lock()
	sessions := slices.Collect(maps.Keys(b.open))
	b.mu.Unlock()
	var files []*os.File
	for _, s := range sessions {
		f, err := s.presence()
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, fmt.Errorf("duplicating a file of sqlite store %s: %w", b.st.path, err)
		}
		if f != nil {
			files = append(files, f)
		}
	}
	return files, nil
}

// Pause waits until no request of this process uses the file, and lets none begin until resume is called.
// It is for a process that is about to stop, as for ^Z: one that stops within a transaction keeps all
// others from the store until it is continued. Requests wait meanwhile, for 5 seconds at most.
//
// An error means that ctx ended first (driver.ErrUnavailable); nothing is paused then. Pause may be
// called concurrently, and resume more than once.
func (b *Backend) Pause(ctx context.Context) (resume func(), err error) {
	var paused []*conn
	resume = sync.OnceFunc(func() {
		for _, c := range paused {
			<-c.gate
		}
	})
	for _, c := range []*conn{b.st.r, b.st.w} {
		select {
		case c.gate <- struct{}{}:
			paused = append(paused, c)
		case <-ctx.Done():
			resume()
			return nil, fmt.Errorf("pausing sqlite store %s: %w: %w", b.st.path, driver.ErrUnavailable, ctx.Err())
		}
	}
	return resume, nil
}

// Name implements [driver.Backend]: "sqlite".
func (b *Backend) Name() string { return "sqlite" }

// Kinds implements [driver.Backend]: SQLite keeps everything, and calls no grant back.
func (b *Backend) Kinds() driver.Kinds {
	all := driver.AllKinds()
	all.CallBack = false
	return all
}

// Open implements [driver.Backend].
func (b *Backend) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	s, err := openSession(ctx, b, cfg)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	shut := b.shut
	if !shut {
		b.open[s] = true
	}
	b.mu.Unlock()
	if shut {
		return nil, errors.Join(driver.ErrClosed, s.Close(ctx))
	}
	return s, nil
}

// Break implements [driver.Backend].
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return b.operate(ctx, name, func(t *tx, r *row) error { return t.breakGrant(r, int64(token)) })
}

// RemoveLatch implements [driver.Backend].
func (b *Backend) RemoveLatch(ctx context.Context, name string) error {
	return b.operate(ctx, name, func(t *tx, r *row) error { return t.removeLatch(r) })
}

// SetLimit implements [driver.Backend].
func (b *Backend) SetLimit(ctx context.Context, name string, limit int) error {
	if err := driver.CheckLimit(limit); err != nil {
		return err
	}
	return b.operate(ctx, name, func(t *tx, r *row) error { return t.setLimit(r, limit) })
}

// operate runs one transaction on one name.
func (b *Backend) operate(ctx context.Context, name string, do func(*tx, *row) error) error {
	if err := errors.Join(b.usable(), driver.CheckName(name)); err != nil {
		return err
	}
	return b.st.write(ctx, func(t *tx) error {
		r, err := t.row(name)
		if err != nil {
			return err
		}
		return do(t, r)
	})
}

// Inspect implements [driver.Backend].
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := errors.Join(b.usable(), driver.CheckName(name)); err != nil {
		return driver.Record{}, err
	}
	return b.st.inspect(ctx, name)
}

// List implements [driver.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	return b.st.list(ctx, prefix, after, limit)
}

// Close implements [driver.Backend]. It also closes open sessions. The file is closed with the last
// Backend of this process that uses it.
func (b *Backend) Close() error {
	var err error
	b.once.Do(func() {
		b.mu.Lock()
		b.shut = true
		left := make([]*session, 0, len(b.open))
		for s := range b.open {
			left = append(left, s)
		}
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, s := range left {
			err = errors.Join(err, s.Close(ctx))
		}
		err = errors.Join(err, b.st.release())
	})
	return err
}

func (b *Backend) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return fmt.Errorf("sqlite store: %w", driver.ErrClosed)
	}
	return nil
}

func (b *Backend) forget(s *session) {
	b.mu.Lock()
	delete(b.open, s)
	b.mu.Unlock()
}
