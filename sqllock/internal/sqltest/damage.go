package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// Damages are ways to damage the row of a name, each an assignment.
var Damages = map[string]string{
	"no such kind":      "kind = 9",
	"negative token":    "token = -1, kind = 2, hid = ''",
	"the last token":    "token = 9223372036854775807, hid = '', busy = 0, expires = 0, line = '', waiting = 0",
	"grants":            "more = 'nonsense', kind = 1",
	"a line":            "line = 'nonsense', waiting = 0",
	"several holders":   "hid = 'a', kind = 2",
	"a mode nobody has": "more = 'H a s.s 7 1 1 1 1 1 0 \n'",
}

// Spoil damages the row of a name.
func Spoil(t testing.TB, db *sql.DB, name, damage string) {
	t.Helper()
	where := fmt.Sprintf(" WHERE name = x'%x'", name)
	if strings.Contains(fmt.Sprintf("%T", db.Driver()), "stdlib") { // pgx
		damage, where = strings.ReplaceAll(damage, "'H a", "E'H a"), fmt.Sprintf(" WHERE name = decode('%x', 'hex')", name)
	}
	res, err := db.Exec("UPDATE hf_lock SET ver = ver + 1, " + damage + where)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%d rows of %q, %v", n, name, err)
	}
}

// DamageStaysAlone damages one record in each way. All calls for its name return ErrDamaged with
// its place, and other names are not affected (R15).
func DamageStaysAlone(t *testing.T, dialect sqllock.Dialect, db *sql.DB) {
	ctx := t.Context()
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	for what, damage := range Damages {
		n := 0
		s := open(t, b, "damage")
		ask := func(name string, mode driver.Mode) (driver.Hold, error) {
			n++
			r := &driver.Request{ID: fmt.Sprint(strings.ReplaceAll(what, " ", "-"), "-", n), Name: what + "/" + name, Mode: mode,
				N: 1, Wait: true}
			rep, err := s.Acquire(ctx, r)
			return driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}, err
		}
		must := func(name string, mode driver.Mode) driver.Hold {
			t.Helper()
			h, err := ask(name, mode)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		bad, place := must("bad", driver.Exclusive), must("bad", driver.Exclusive)
		holds := []driver.Hold{bad, place}
		for i := range 5 {
			holds = append(holds, must(fmt.Sprint("alone", i), driver.Exclusive), must(fmt.Sprint("shared", i), driver.Shared))
		}
		Spoil(t, db, bad.Name, damage)
		for call, err := range map[string]error{
			"Inspect":   func() error { _, err := b.Inspect(ctx, bad.Name); return err }(),
			"Acquire":   func() error { _, err := ask("bad", driver.Exclusive); return err }(),
			"a share":   func() error { _, err := ask("bad", driver.Shared); return err }(),
			"Release":   s.Release(ctx, bad, 0),
			"Downgrade": s.Downgrade(ctx, bad),
			"Break":     b.Break(ctx, bad.Name, bad.Token),
		} {
			if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), "hf_lock") ||
				!strings.Contains(err.Error(), bad.Name) {
				t.Errorf("%s: %s: %v; want ErrDamaged, with the table and the name", what, call, err)
			}
		}
		changes, err := s.Renew(ctx, holds)
		if err != nil {
			t.Errorf("%s: Renew: %v", what, err)
		}
		gone := map[int]bool{}
		for _, ch := range changes {
			gone[ch.Index] = ch.State == driver.Gone && !ch.Missing
		}
		if len(changes) != 2 || !gone[0] || !gone[1] {
			t.Errorf("%s: Renew: %+v; want Gone for the grant and the place of the damaged name", what, changes)
		}
		list, err := b.List(ctx, what+"/", "", 100)
		if err != nil || len(list) != 11 {
			t.Errorf("%s: List: %d records, %v; want 11", what, len(list), err)
		}
		for _, rec := range list {
			if (rec.Name == bad.Name) != (rec.Damaged != "") {
				t.Errorf("%s: %q is listed as damaged: %q", what, rec.Name, rec.Damaged)
			}
		}
		for _, h := range holds[2:] {
			if err := s.Release(ctx, h, 0); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		_ = s.Close(ctx)
	}
	findings, err := b.Diagnose(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if strings.HasSuffix(f.Code, ".records") {
			if !strings.Contains(f.Found, "/bad") || f.Do == "" {
				t.Errorf("doctor reports %+v", f)
			}
			return
		}
	}
	t.Errorf("doctor does not report the damaged records: %+v", findings)
}

// EvictedIsMissing deletes a row: renewal reports that the record is gone.
func EvictedIsMissing(t *testing.T, dialect sqllock.Dialect, db *sql.DB) {
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	s := open(t, b, "evicted")
	defer func() { _ = s.Close(context.Background()) }()
	r := &driver.Request{ID: "evicted-1", Name: "evicted", Mode: driver.Exclusive, N: 1}
	rep, err := s.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DELETE FROM hf_lock WHERE name = 'evicted'"); err != nil {
		t.Fatal(err)
	}
	changes, err := s.Renew(t.Context(), []driver.Hold{{Name: r.Name, ID: r.ID, Token: rep.Token}})
	if err != nil || len(changes) != 1 || changes[0].State != driver.Gone || !changes[0].Missing {
		t.Errorf("Renew: %+v, %v; want Gone and Missing", changes, err)
	}
}
