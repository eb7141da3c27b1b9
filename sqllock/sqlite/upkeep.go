package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

const (
	sweepEvery      = 1024           // grants between two sweeps
	sweepBatch      = 256            // rows per transaction
	sweepRows       = 4 * sweepEvery // rows per sweep: faster than rows can be added
	checkpointEvery = 256            // writing uses of the file between two checkpoints
)

// upkeep counts work for the background goroutine.
type upkeep struct {
	takes, writes     atomic.Uint64
	sweep, checkpoint chan struct{}
}

func (u *upkeep) took() {
	if u.takes.Add(1)%sweepEvery == 0 {
		u.sweepSoon()
	}
}

func (u *upkeep) wrote() {
	if u.writes.Add(1)%checkpointEvery == 0 {
		signal(u.checkpoint)
	}
}

func (u *upkeep) sweepSoon() { signal(u.sweep) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// startUpkeep starts a background goroutine for occasional work. It moves the log into the file,
// which waits for the disk. It deletes rows of names long unused, and sessions and files of dead
// processes.
func (st *store) startUpkeep() {
	ctx, stop := context.WithCancel(context.Background())
	st.stop = stop
	st.upkeep.sweep, st.upkeep.checkpoint = make(chan struct{}, 1), make(chan struct{}, 1)
	st.w.used = st.upkeep.wrote
	st.wg.Add(1)
	go func() {
		defer st.wg.Done()
		session := ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-st.upkeep.checkpoint:
				// On failure, SQLite does it in a later commit. It is not repeated, because readers wait.
				_ = st.r.alone(ctx, func() error {
					if st.r.open {
						st.r.end()
					}
					_, err := st.r.c.ExecContext(context.Background(), `PRAGMA wal_checkpoint(PASSIVE)`)
					return err
				})
				continue
			case <-st.upkeep.sweep:
			}
			// A full sweep is for sweepEvery grants; a store just opened sweeps one batch.
			for range 1 + sweepRows*min(1, st.upkeep.takes.Load()/sweepEvery)/sweepBatch {
				if more, err := st.sweepRows(ctx); err != nil || !more {
					break
				}
			}
			st.sweepHistories(ctx)
			session = st.sweepSessions(ctx, session)
			st.sweepFiles(ctx)
		}
	}()
}

// sweepRows deletes idle rows among the next few; their tokens raise the floor. The file stores
// where the next sweep continues, since a process may be too short-lived for a second one. more
// means that the table has more rows.
func (st *store) sweepRows(ctx context.Context) (more bool, err error) {
	err = st.write(ctx, func(t *tx) error {
		var idle [][]byte
		var last []byte
		var floor int64
		n := 0
		if _, err := t.c.get(qSwept, nil, &last); err != nil {
			return err
		}
		err := t.c.each(qIdle, []any{t.now, t.now, t.now - int64(st.env.idle), last, sweepBatch},
			func(scan func(...any) error) error {
				var name []byte
				var token int64
				var unused bool
				err := scan(&name, &token, &unused)
				if n++; unused {
					idle, floor = append(idle, name), max(floor, token)
				}
				last = name
				return err
			})
		if err != nil {
			return err
		}
		for _, name := range idle {
			if _, err := t.c.exec(qDropRow, name); err != nil {
				return err
			}
		}
		if more = n == sweepBatch; !more {
			last = []byte{0} // smaller than any other name, and not empty
		}
		_, err = t.c.exec(qSetSwept, last, floor)
		return err
	})
	return more, err
}

// sweepSessions removes dead sessions among the next few, and returns where to continue. It finds
// dead sessions that no waiter checks.
func (st *store) sweepSessions(ctx context.Context, after string) string {
	at := map[string]*address{}
	last := ""
	err := st.snapshot(ctx, func(c *conn, _ int64) error {
		clear(at)
		return c.each(qSessions, []any{after, 64}, func(scan func(...any) error) error {
			var a address
			err := scan(&last, &a.bell, &a.file, &a.inode)
			at[last] = &a
			return err
		})
	})
	if err != nil {
		return after
	}
	for id, a := range at {
		st.removeIfDead(ctx, id, a)
	}
	if len(at) < 64 {
		return ""
	}
	return last
}

// sweepFiles removes files of sessions that were never recorded or are gone.
func (st *store) sweepFiles(ctx context.Context) {
	st.mu.Lock()
	run := st.run
	st.mu.Unlock()
	dir, err := os.Open(run)
	if err != nil {
		return
	}
	names, err := dir.Readdirnames(1024)
	dir.Close()
	if err != nil {
		return
	}
	known := map[string]bool{}
	if st.snapshot(ctx, func(c *conn, _ int64) error {
		for last := ""; ; {
			n := 0
			err := c.each(qSessions, []any{last, 256}, func(scan func(...any) error) error {
				var a address
				err := scan(&last, &a.bell, &a.file, new(int64))
				known[filepath.Base(a.file)] = true
				n++
				return err
			})
			if err != nil || n < 256 {
				return err
			}
		}
	}) != nil {
		return
	}
	for _, name := range names {
		key, ok := strings.CutPrefix(name, "s-")
		if !ok || known[name] {
			continue
		}
		path := filepath.Join(run, name)
		// A live session's file is locked as soon as it exists, or is created again.
		if life, file := host.Probe(path, 0); life == host.Dead {
			os.Remove(filepath.Join(run, "b-"+key))
			file.Close(true)
		}
	}
}
