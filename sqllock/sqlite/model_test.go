package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/internal/modeltest"
)

// TestSQLiteModel compares the store with package rule.
func TestSQLiteModel(t *testing.T) {
	modeltest.Check(t, 4/raceFactor, sqliteModel(t))
}

// TestSQLiteModelCatches breaks statements in ways that the comparison must notice.
func TestSQLiteModelCatches(t *testing.T) {
	for _, m := range []struct {
		what     string
		q        query
		old, new string
	}{
		{"the queue is served from its end", qRow, "min(seq)", "max(seq)"},
		{"places are not renewed", qRenewPlace, "SET deadline = max(?, min(deadline, ?))",
			"SET deadline = max(deadline, ? / 2, ? / 2)"},
		{"an adopted permit keeps its id", qAdoptHold, "SET id = ?", "SET id = ifnull(id, ?)"},
		{"a waiter takes one token", qRow, "ifnull(p.n, 0)", "iif(p.mode = 1, 1, ifnull(p.n, 0))"},
		{"permits of dead sessions are lost", qRemoveHolds, "WHERE", "WHERE 0 AND"},
	} {
		t.Run(m.what, func(t *testing.T) {
			old := queries[m.q]
			defer func() { queries[m.q] = old }()
			if queries[m.q] = strings.Replace(old, m.old, m.new, 1); queries[m.q] == old {
				t.Fatal("the statement has no such text")
			}
			modeltest.Catches(t, 2, 8, sqliteModel(t))
		})
	}
}

// sqliteModel opens a store for each history, on a clock that the history moves.
func sqliteModel(t *testing.T) func(*rapid.T) modeltest.Store {
	dir, files := t.TempDir(), 0
	return func(t *rapid.T) modeltest.Store {
		files++
		c := &clock{}
		c.now.Store(int64(time.Hour))
		c.wall.Store(1_700_000_000_000_000)
		b, err := Open(fmt.Sprintf("%s/%d.db", dir, files), &Config{env: c.env()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := closed(b); err != nil {
				t.Fatal(err)
			}
		})
		return modeltest.Store{
			Backend: b,
			Pass: func(d time.Duration) {
				c.now.Add(int64(d))
				c.wall.Add(d.Microseconds())
			},
			Kill:  func(session string) { b.killAndRemove(t, session) },
			Death: modeltest.AsClosed,
			Restart: func() {
				if err := b.st.reopen(); err != nil {
					t.Fatal(err)
				}
			},
			Check: func() error {
				checkSums(t, b)
				return nil
			},
		}
	}
}

// killAndRemove kills a session and returns when its death was found and it was removed, as waiters
// would do.
func (b *Backend) killAndRemove(t *rapid.T, id string) {
	b.st.mu.Lock()
	s := b.st.sessions[id]
	b.st.mu.Unlock()
	s.kill()
	at := &address{
		bell: b.st.addressOf(s.endpoint.bellPath), file: b.st.addressOf(s.endpoint.filePath),
		inode: int64(s.endpoint.presence.Inode()),
	}
	for end := time.Now().Add(patience); ; {
		b.st.removeIfDead(t.Context(), id, at)
		var one int
		var there bool
		err := b.st.r.with(t.Context(), func() (err error) {
			there, err = b.st.r.get(qSession, []any{id}, new(string), new(string), &one)
			return err
		})
		if err != nil || time.Now().After(end) {
			t.Fatalf("the dead session is not removed: %v", err)
		}
		if !there {
			return
		}
	}
}
