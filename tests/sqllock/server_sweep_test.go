package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// The sweep removes only unused rows, and tokens of their names keep growing. A row whose token is
// ahead of the clock stays.
func TestSweepOfMariaDB(t *testing.T) {
	server := testenv.MariaDB(t)
	db, err := sql.Open("mysql", server.DSN("root", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx := t.Context()
	if err := sqllock.Init(ctx, db, mysql.Dialect()); err != nil {
		t.Fatal(err)
	}
	open := func() (*sqllock.Server, driver.Session) {
		t.Helper()
		b := sqllock.New(db, mysql.Dialect(), nil)
		t.Cleanup(func() { _ = b.Close() })
		s, err := b.Open(ctx, driver.SessionConfig{ID: "a", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		return b, s
	}
	b, s := open()
	ids := 0
	request := func(name string, mode driver.Mode) *driver.Request {
		ids++
		r := &driver.Request{ID: fmt.Sprint("id-", ids), Name: name, Mode: mode, N: 1, Wait: true}
		if mode == driver.Permits {
			r.Limit = 3
		}
		return r
	}
	get := func(s driver.Session, r *driver.Request) driver.Hold {
		t.Helper()
		rep, err := s.Acquire(ctx, r)
		if err != nil || rep.Token == 0 {
			t.Fatalf("Acquire(%q) = %+v, %v", r.Name, rep, err)
		}
		return driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
	}
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(ctx, statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}

	// Names in use in every way.
	get(s, request("held", driver.Exclusive))
	get(s, request("shared", driver.Shared))
	get(s, request("permits", driver.Permits))
	get(s, request("waited for", driver.Exclusive))
	if _, err := s.Acquire(ctx, request("waited for", driver.Exclusive)); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(ctx, get(s, request("kept", driver.Exclusive)), time.Hour); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int64{"latch": 2, "open latch": 0} {
		if err := testenv.Repeated(func() error { _, err := s.SetCount(ctx, name, n); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.SetLimit(ctx, "limit", 3); err != nil {
		t.Fatal(err)
	}
	used := []string{"held", "kept", "latch", "limit", "open latch", "permits", "shared", "waited for"}
	// Names no longer in use, or used a moment ago: more than one step of the sweep.
	last := map[string]uint64{}
	for name, mode := range map[string]driver.Mode{
		"idle": driver.Exclusive, "idle permits": driver.Permits, "idle share": driver.Shared, "recent": driver.Exclusive,
	} {
		h := get(s, request(name, mode))
		if err := s.Release(ctx, h, 0); err != nil {
			t.Fatal(err)
		}
		last[name] = h.Token
	}
	exec(
		"INSERT INTO hf_lock SELECT CONCAT('many ', seq), 0, 0, 0, seq, 1, 0, '', '', 0, 0, 0, 0, 0, '', 0, 0, '', '' FROM seq_1_to_1200")
	const ahead = uint64(1) << 52 // in the year 2112
	exec("UPDATE hf_lock SET token = ? WHERE name = 'idle permits'", ahead)
	last["idle permits"] = ahead
	highest := int64(last["idle"]) - (3 * 24 * time.Hour).Microseconds()
	exec("UPDATE hf_lock SET token = ? WHERE name IN ('idle', 'idle share')", highest)
	const day = 24 * time.Hour
	exec("UPDATE hf_lock SET at = at - ? WHERE name <> 'recent'", (2 * day).Microseconds())

	var cursor []byte
	steps := 0
	for {
		if cursor, err = hook.SQLSweep(ctx, b, cursor, day); err != nil {
			t.Fatal(err)
		}
		if steps++; cursor == nil {
			break
		}
	}
	if steps < 3 {
		t.Errorf("%d steps; want several", steps)
	}
	var left []string
	rows, err := db.QueryContext(ctx, "SELECT name FROM hf_lock ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name []byte
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		left = append(left, string(name))
	}
	want := slices.Sorted(slices.Values(append(used, "idle permits", "recent")))
	if !slices.Equal(left, want) {
		t.Errorf("left are %q; want %q", left, want)
	}
	var floor int64
	if err := db.QueryRowContext(ctx, "SELECT floor FROM hf_meta").Scan(&floor); err != nil || floor != highest {
		t.Errorf("the floor is %d, %v; want %d, the highest token of the deleted rows", floor, err, highest)
	}
	exec("UPDATE hf_meta SET floor = ?", ahead+1e6) // as the sweep of a server would whose clock was set back later
	last["idle"] = ahead + 1e6
	if _, err := hook.SQLSweep(ctx, b, nil, day); err != nil { // reads the floor
		t.Fatal(err)
	}
	_, fresh := open() // read the floor when it opened
	for i, s := range []driver.Session{s, fresh} {
		for name, token := range last {
			h := get(s, request(name, driver.Exclusive))
			if h.Token <= token {
				t.Errorf("Server %d: %q: token %d after %d", i, name, h.Token, token)
			}
			last[name] = h.Token
			if err := s.Release(ctx, h, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A latch and a semaphore are unchanged.
	var n int64
	if err := testenv.Repeated(func() (err error) {
		n, err = s.CountDown(ctx, "latch", "one")
		return err
	}); err != nil || n != 1 {
		t.Errorf("CountDown = %d, %v", n, err)
	}
	if rec, err := b.Inspect(ctx, "waited for"); err != nil || rec.Waiting != 1 || len(rec.Holders) != 1 {
		t.Errorf("Inspect = %+v, %v", rec, err)
	}
	// The floor does not sink if a restore brings back an older one.
	exec("UPDATE hf_meta SET floor = 0")
	if _, err := hook.SQLSweep(ctx, b, nil, day); err != nil {
		t.Fatal(err)
	}
	exec("DELETE FROM hf_lock WHERE name = 'idle'")
	if h := get(s, request("idle", driver.Exclusive)); h.Token <= ahead+1e6 {
		t.Errorf("token %d: the floor was forgotten", h.Token)
	}
	sweptByAnother(t, db, mysql.Dialect)
}
