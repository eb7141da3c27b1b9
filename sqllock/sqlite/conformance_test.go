package sqlite

import (
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestSQLiteConformance(t *testing.T) { drivertest.Run(t, harness()) }

func TestTimedSQLiteConformance(t *testing.T) { drivertest.RunTimed(t, harness()) }

// harness gives each test its own file.
func harness() drivertest.Harness {
	var mu sync.Mutex
	paths := map[testing.TB]string{}
	path := func(t testing.TB) string {
		mu.Lock()
		defer mu.Unlock()
		if paths[t] == "" {
			paths[t] = storePath(t)
		}
		return paths[t]
	}
	return drivertest.Harness{
		TTL:   2 * time.Second,
		Names: testenv.Rounds(300, 10_000),
		Open: func(t testing.TB) drivertest.Conn {
			b := openTest(t, path(t), nil)
			c := drivertest.Faulty(b)
			killed := c.Kill
			c.Kill = func() {
				killed()
				b.kill()
			}
			return c
		},
		Refuse: map[string]func(t testing.TB) func(){
			"SQLITE_READONLY": func(t testing.TB) func() {
				st := openTest(t, path(t), nil).st
				set := func(on string) { execOn(t, st, `PRAGMA query_only = `+on) }
				set("ON")
				return func() { set("OFF") }
			},
		},
		Forger: forger(path),
		Damage: map[string]func(t testing.TB, name string){
			"kind":  damage(path, `UPDATE lock SET kind = 9 WHERE name = ?`),
			"time":  damage(path, `UPDATE lock SET expires = 'soon' WHERE name = ?`),
			"token": damage(path, `UPDATE lock SET token = 'x' WHERE name = ?`),
			"sum":   damage(path, `UPDATE lock SET waiting = -1 WHERE name = ?`),
			"blob":  damage(path, `UPDATE lock SET lim = x'00ff', count = x'ff' WHERE name = ?`),
		},
		Restart: func(t testing.TB) {
			b := openTest(t, path(t), nil)
			if err := b.st.reopen(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// execOn runs a statement on the write connection.
func execOn(t testing.TB, st *store, stmt string, args ...any) {
	t.Helper()
	must(t, st.w.with(t.Context(), func() error {
		_, err := st.w.c.ExecContext(t.Context(), stmt, args...)
		return err
	}))
}

// damage returns a function that damages a name's record, as another program could.
func damage(path func(testing.TB) string, stmt string) func(testing.TB, string) {
	return func(t testing.TB, name string) {
		t.Helper()
		execOn(t, openTest(t, path(t), nil).st, stmt, []byte(name))
	}
}

// kill ends the sessions of b as the end of their process would.
func (b *Backend) kill() {
	b.mu.Lock()
	var all []*session
	for s := range b.open {
		all = append(all, s)
	}
	b.mu.Unlock()
	for _, s := range all {
		s.kill()
	}
}

// reopen closes the file, which removes its log, and opens it again.
func (st *store) reopen() (err error) {
	for _, c := range []*conn{st.w, st.r} {
		c.gate <- struct{}{}
		defer func() { <-c.gate }()
		err = errors.Join(err, c.close())
		c.c = nil
	}
	if err = errors.Join(err, st.db.Close()); err != nil {
		return err
	}
	if st.db, err = sql.Open(st.driver, st.dsn("")); err != nil {
		return err
	}
	if err := errors.Join(st.connect(st.w), st.connect(st.r)); err != nil {
		return err
	}
	for _, c := range []*conn{st.w, st.r} {
		if _, err := c.get(qSwept, nil, new([]byte)); err != nil {
			return err
		}
	}
	return st.fix()
}
