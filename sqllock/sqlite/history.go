package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

// The table of the histories is created by the first AddHistory, not with the file. So files of a
// release without histories get it, and clients of that release go on with files that have it: it
// has no part in the version of the schema.
//
// at is the wall clock in microseconds: the clock of the boot has no meaning after the next one.
// seq orders the entries, since the wall clock may be set back. The newest entry of each history is
// marked as last, and an index has these alone, so that old histories are found.
var historySchema = []query{qHistoryTable, qHistoryIndex}

// AddHistory implements [driver.Backend]. It also removes an old history, if there is one: no more
// histories can come than go.
func (b *Backend) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	if err := b.usable(); err != nil {
		return err
	}
	if err := b.st.roomForHistory(); err != nil {
		return err
	}
	err := b.st.write(ctx, func(t *tx) error {
		if there, err := hasHistories(t.c); err != nil {
			return err
		} else if !there {
			for _, q := range historySchema {
				if _, err := t.c.exec(q); err != nil {
					return err
				}
			}
		}
		if err := t.addHistory([]byte(name), []byte(text), keep); err != nil {
			return err
		}
		return t.dropOldHistories(1)
	})
	return historyFault(name, err)
}

// historyReserve is the space that histories leave to locks. Renewals and releases need no new pages,
// but on a full disk they need the log, which an entry would use up.
const historyReserve = 4 * logReserve

func (st *store) roomForHistory() error {
	at, err := st.env.place(filepath.Dir(st.path))
	if err == nil && at.Kind != "" && at.Free < historyReserve {
		return fmt.Errorf("%w: the file system has no space: %d bytes are free, and a history leaves the last %d to locks",
			driver.ErrUnavailable, at.Free, historyReserve)
	}
	return nil
}

func hasHistories(c *conn) (there bool, err error) {
	return c.get(qHasHistories, nil, new(int))
}

// addHistory adds an entry to a history that does not have it.
func (t *tx) addHistory(name, text []byte, keep int) error {
	if there, err := t.c.get(qHasEntry, []any{name, text}, new(int)); err != nil {
		return err
	} else if !there {
		var last int64
		if _, err := t.c.get(qLastEntry, []any{name}, &last); err != nil {
			return err
		}
		if last < 0 || last == math.MaxInt64 {
			return damaged("the number of an entry is %d", last)
		}
		if _, err := t.c.exec(qUnmarkEntry, name); err != nil {
			return err
		}
		if _, err := t.c.exec(qAddEntry, name, last+1, t.us, text); err != nil {
			return err
		}
	}
	_, err := t.c.exec(qTrimHistory, name, keep)
	return err
}

// dropOldHistories removes at most n histories whose last entry is older than driver.HistoryLife.
func (t *tx) dropOldHistories(n int) error {
	var names [][]byte
	before := t.us - driver.HistoryLife.Microseconds()
	err := t.c.each(qOldHistories, []any{before, n}, func(scan func(...any) error) error {
		var name []byte
		err := scan(&name)
		names = append(names, bytes.Clone(name))
		return err
	})
	for _, name := range names {
		if err == nil {
			_, err = t.c.exec(qDropHistory, name)
		}
	}
	return err
}

// sweepHistories removes some old histories.
func (st *store) sweepHistories(ctx context.Context) {
	old := false
	err := st.snapshot(ctx, func(c *conn, _ int64) error {
		there, err := hasHistories(c)
		if err == nil && there {
			old, err = c.get(qOldHistories, []any{st.env.wall() - driver.HistoryLife.Microseconds(), 1}, new([]byte))
		}
		return err
	})
	if err == nil && old {
		_ = st.write(ctx, func(t *tx) error { return t.dropOldHistories(16) }) // the next sweep, or entry, continues
	}
}

// History implements [driver.Backend].
func (b *Backend) History(ctx context.Context, name string) (list []driver.Entry, err error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	if err := b.usable(); err != nil {
		return nil, err
	}
	err = b.st.snapshot(ctx, func(c *conn, _ int64) error {
		list = nil // snapshot repeats this while the file is locked
		if there, err := hasHistories(c); err != nil || !there {
			return err
		}
		now := b.st.env.wall()
		return c.each(qHistory, []any{[]byte(name), driver.MaxHistory}, func(scan func(...any) error) error {
			var at int64
			var text []byte
			if err := scan(&at, &text); err != nil {
				return err
			}
			if len(text) == 0 || len(text) > driver.MaxEntry || !utf8.Valid(text) {
				return damaged("an entry is no text of 1 to %d bytes: %.60q", driver.MaxEntry, text)
			}
			list = append(list, driver.Entry{Text: string(text), Age: max(0, time.Duration(now-at)*time.Microsecond)})
			return nil
		})
	})
	if err != nil {
		return nil, historyFault(name, err)
	}
	slices.Reverse(list)
	return list, nil
}

// historyFault names the table in an error about what it has.
func historyFault(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case code(err) == codeError, code(err) == codeConstraint, errors.Is(err, driver.ErrUnavailable) &&
		strings.Contains(err.Error(), "no such column"): // some drivers show no codes
		return fmt.Errorf("%w: the table history is not as holdfast created it: %v; drop it, and the next entry creates it",
			driver.ErrDamaged, err)
	}
	return fmt.Errorf("history of %q: %w", name, err)
}

// WhyMissing implements [driver.Backend]. holdfast deletes no row in use, so another program did.
func (b *Backend) WhyMissing(ctx context.Context, name string, _ time.Duration) (driver.Cause, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.CauseUnknown, err
	}
	if err := b.usable(); err != nil {
		return driver.CauseUnknown, err
	}
	others := false
	err := b.st.snapshot(ctx, func(c *conn, _ int64) (err error) {
		others, err = c.get(qOthers, []any{[]byte(name)}, new(int))
		return err
	})
	if err != nil || !others {
		return driver.CauseUnknown, err
	}
	return driver.CauseDeleted, nil
}
