package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// identify refuses a foreign file before anything changes it. It reads the header directly: SQLite
// takes no locks on a file that it must not change, and could see damage while another process
// moves its log. create writes these values to the main file first, so the log does not matter.
func (st *store) identify() error {
	f, err := os.Open(st.path)
	if err != nil {
		return err
	}
	defer f.Close() // this process has it open nowhere else: see shared
	var h [100]byte
	switch n, err := io.ReadFull(f, h[:]); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil // an empty file becomes a store
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && string(h[:16]) != "SQLite format 3\x00":
		return fmt.Errorf("%w: this file was not made by holdfast: it is not an SQLite database", driver.ErrRefused)
	case err != nil:
		return err
	}
	return checkIDs(int(binary.BigEndian.Uint32(h[68:])), int(binary.BigEndian.Uint32(h[60:])))
}

// rower is what *sql.DB and *sql.Conn have in common here.
type rower interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func checkHeader(q rower) error {
	bg := context.Background()
	var app, version int
	if err := q.QueryRowContext(bg, `PRAGMA application_id`).Scan(&app); err != nil {
		return err
	}
	if err := q.QueryRowContext(bg, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	return checkIDs(app, version)
}

func checkIDs(app, version int) error {
	switch {
	case app != sqliteAppID:
		return fmt.Errorf("%w: this database was not made by holdfast: its application id is %#x, expected %#x",
			driver.ErrRefused, app, sqliteAppID)
	case version != sqliteVersion:
		return fmt.Errorf("%w: the schema has version %d, expected %d", driver.ErrRefused, version, sqliteVersion)
	}
	return nil
}

// build creates the file under another name and links it to its own when complete. So no process
// ever sees half a file, even if this one dies here. If another process was faster, its file stays.
func (st *store) build() (err error) {
	tmp := &store{env: st.env, path: st.path + ".new-" + strings.ToLower(rand.Text()[:8]), driver: st.driver}
	defer func() {
		for _, end := range []string{"", "-wal", "-shm", "-journal"} {
			os.Remove(tmp.path + end)
		}
	}()
	// SQLite would create it with the umask's mode.
	f, err := os.OpenFile(tmp.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil { // no process has locked it so far
		return err
	}
	if tmp.db, err = sql.Open(st.driver, tmp.dsn("")); err != nil {
		return err
	}
	tmp.w = newConn()
	if err = tmp.connect(tmp.w); err == nil {
		if err = tmp.create(); err == nil {
			err = tmp.walMode()
		}
	}
	if err = errors.Join(err, tmp.closeDB()); err != nil {
		return err
	}
	if err = os.Link(tmp.path, st.path); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// create creates the tables in an empty file, or checks existing ones. It runs before the file has
// a write-ahead log, so the header in the main file is complete from the start.
func (st *store) create() (err error) {
	bg := context.Background()
	c := st.w.c
	if _, err := c.ExecContext(bg, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.ExecContext(bg, `ROLLBACK`)
		}
	}()
	var tables int
	if err := c.QueryRowContext(bg, `SELECT count(*) FROM sqlite_schema`).Scan(&tables); err != nil {
		return err
	}
	if tables > 0 {
		if err := checkHeader(c); err != nil {
			return err
		}
		_, err = c.ExecContext(bg, `COMMIT`)
		return err
	}
	stmts := append([]string{
		fmt.Sprintf(`PRAGMA application_id = %d`, sqliteAppID),
		fmt.Sprintf(`PRAGMA user_version = %d`, sqliteVersion),
	}, sqliteSchema...)
	stmts = append(stmts, `INSERT INTO meta VALUES (1, '', 0, 0, x'00')`, `COMMIT`)
	for _, s := range stmts {
		if _, err := c.ExecContext(bg, s); err != nil {
			return err
		}
	}
	return nil
}

func (st *store) walMode() error {
	var mode string
	err := st.w.c.QueryRowContext(context.Background(), `PRAGMA journal_mode = WAL`).Scan(&mode)
	if err == nil && mode != "wal" {
		err = fmt.Errorf("%w: SQLite's write-ahead log does not work here (journal mode %q)", driver.ErrRefused, mode)
	}
	return err
}

// enterBoot deletes the state of an earlier boot: its processes are gone, and its clock has no
// meaning now. Tokens continue above all that were given out, see raise. Latches and limits that are
// set are no leases; they stay.
func (st *store) enterBoot() (err error) {
	boot, err := st.env.boot()
	if err != nil {
		return err
	}
	bg := context.Background()
	c := st.w.c
	var was string
	if err := c.QueryRowContext(bg, `SELECT boot FROM meta`).Scan(&was); err != nil || was == boot {
		return err
	}
	if _, err := c.ExecContext(bg, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.ExecContext(bg, `ROLLBACK`)
		}
	}()
	if err := c.QueryRowContext(bg, `SELECT boot FROM meta`).Scan(&was); err != nil {
		return err
	}
	if was != boot { // no other process was faster
		for _, s := range []string{
			`DELETE FROM hold`, `DELETE FROM place`, `DELETE FROM session`, `DELETE FROM awaiting`,
			`UPDATE lock SET kind = iif(` + stays + `, kind, 0), lim = iif(` + stays + `, lim, 0),
				holders = 0, used = 0, waiting = 0, id = '', session = '', since = 0, expires = 0, keep = 0, kept = 0, info = ''`,
		} {
			if _, err := c.ExecContext(bg, s); err != nil {
				return err
			}
		}
		if _, err := c.ExecContext(bg, `UPDATE meta SET boot = ?, floor = max(floor, ceiling)`, boot); err != nil {
			return err
		}
	}
	_, err = c.ExecContext(bg, `COMMIT`)
	return err
}
