package sqlite

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestSQLiteDamagedRows damages rows of a grant, of the first place in a queue, and of a session.
// Nothing else is affected, and dead sessions are still removed.
func TestSQLiteDamagedRows(t *testing.T) {
	for what, stmt := range map[string]string{
		"grant":   `UPDATE hold SET n = 'x' WHERE name = ?`,
		"mode":    `UPDATE hold SET mode = 9 WHERE name = ?`,
		"place":   `UPDATE place SET minhold = 'x' WHERE name = ?`,
		"name":    `UPDATE lock SET kind = 'x' WHERE name = ?`,
		"session": `UPDATE session SET inode = 'x', opened = 'x' WHERE ? <> ''`,
	} {
		t.Run(what, func(t *testing.T) {
			b := openTest(t, storePath(t), nil)
			s, dying, other := openTestSession(t, b, time.Hour), openTestSession(t, b, time.Hour), openTestSession(t, b,
				time.Hour)
			holds := []driver.Hold{granted(t, s, exclusive("a"))}
			bad := granted(t, s, permits("bad", 1, 2))
			queued(t, dying, permits("bad", 2, 2))
			holds = append(holds, granted(t, s, permits("s", 1, 2)))
			place := exclusive("dying/0")
			for i := range 5 {
				granted(t, dying, exclusive(fmt.Sprint("dying/", i)))
			}
			wake := queued(t, s, place)
			holds = append(holds, driver.Hold{Name: place.Name, ID: place.ID})
			execOn(t, b.st, stmt, []byte("bad"))

			changes, err := s.Renew(t.Context(), append(holds, bad))
			must(t, err)
			for _, ch := range changes {
				if ch.State != driver.Waiting && (ch.Index != len(holds) || what == "session" || what == "place" &&
					ch.State != driver.Gone) {
					t.Errorf("Renew with a damaged row: %+v", ch)
				}
			}
			recs, err := other.b.List(t.Context(), "", "", 100)
			must(t, err)
			if len(recs) != 8 {
				t.Errorf("%d names listed; want 8: %+v", len(recs), recs)
			}
			for _, r := range recs {
				if r.Name == "bad" && what != "session" != (r.Damaged != "") || r.Name != "bad" && len(r.Holders) != 1 {
					t.Errorf("listed as %+v", r)
				}
			}
			_, err = b.Inspect(t.Context(), "bad")
			if what != "session" && !errors.Is(err, driver.ErrDamaged) {
				t.Errorf("Inspect: %v; want ErrDamaged", err)
			}
			for more := true; more; {
				more, err = b.st.sweepRows(t.Context())
				must(t, err)
			}
			dying.kill()
			must(t, b.st.removeSession(t.Context(), dying.id))
			woken(t, wake)
		})
	}
}

// TestSQLiteDamagedBlock makes a waiter's block of tokens too large: it is not granted.
func TestSQLiteDamagedBlock(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s := openTestSession(t, b, time.Hour)
	for n, bad := range map[int]bool{driver.MaxTokens: false, driver.MaxTokens + 1: true, 0: true} {
		h := granted(t, s, exclusive(fmt.Sprint("block/", n)))
		queued(t, s, exclusive(h.Name))
		execOn(t, b.st, `UPDATE place SET n = ? WHERE name = ?`, n, []byte(h.Name))
		if err := s.Release(t.Context(), h, 0); errors.Is(err, driver.ErrDamaged) != bad {
			t.Errorf("a release before a waiter that takes %d tokens: %v; want ErrDamaged: %v", n, err, bad)
		}
	}
}

// TestSQLiteDamagedPage overwrites a part of the file: the error reports what is wrong and what to
// do.
func TestSQLiteDamagedPage(t *testing.T) {
	path := storePath(t)
	must(t, openTestOnce(path))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	for page := int64(1); page < 40; page++ {
		_, err = f.WriteAt([]byte(strings.Repeat("\xff", 100)), page*4096)
		must(t, err)
	}
	must(t, f.Close())
	b, err := Open(path, nil)
	if err == nil {
		defer b.Close()
		_, err = b.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: time.Minute})
	}
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "the file is damaged") {
		t.Errorf("%v; want ErrRefused and advice", err)
	}
	t.Log(err)
}
