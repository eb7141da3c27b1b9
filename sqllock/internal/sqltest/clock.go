package sqltest

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// ClockSetBack sets the server's clock back by an hour, repeatedly. A lease lasts as long as its
// holder may trust it, in each way of granting, and tokens grow. The dialect must use Clock for the
// time.
func ClockSetBack(t *testing.T, db *sql.DB, dialect sqllock.Dialect) {
	const ttl = 5 * time.Second
	ctx := t.Context()
	do := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := sqllock.Init(ctx, db, dialect); err != nil {
		t.Fatal(err)
	}
	now := int64(1_700_000_000_000_000)
	do("CREATE TABLE hf_clock (us BIGINT NOT NULL)")
	do(fmt.Sprintf("INSERT INTO hf_clock (us) VALUES (%d)", now))
	set := func(d time.Duration) {
		t.Helper()
		now += d.Microseconds()
		do(fmt.Sprintf("UPDATE hf_clock SET us = %d", now))
	}
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	var all [2]driver.Session
	for i := range all {
		s, err := b.Open(ctx, driver.SessionConfig{ID: fmt.Sprint("s", i), TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(ctx) }()
		all[i] = s
	}
	ids, last := 0, uint64(0)
	ask := func(s driver.Session, mode driver.Mode, wait bool) (*driver.Request, driver.Reply) {
		t.Helper()
		ids++
		r := &driver.Request{ID: fmt.Sprint("r-", ids), Name: "n", Mode: mode, N: 1, Wait: wait}
		reply, err := s.Acquire(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Token != 0 {
			if reply.Token <= last {
				t.Errorf("token %d after %d", reply.Token, last)
			}
			last = reply.Token
		}
		return r, reply
	}
	hold := func(r *driver.Request, token uint64) driver.Hold {
		return driver.Hold{Name: r.Name, ID: r.ID, Token: token}
	}
	stands := func(s driver.Session, h driver.Hold) {
		t.Helper()
		changes, err := s.Renew(ctx, []driver.Hold{h})
		if err != nil || len(changes) > 0 {
			t.Errorf("renewal: %+v, %v", changes, err)
		}
		if _, reply := ask(all[1], driver.Exclusive, false); reply.Token != 0 {
			t.Errorf("token %d was granted at the same time as %d", reply.Token, h.Token)
		}
	}
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		// Taken while the row has a later time.
		set(-time.Hour)
		r, reply := ask(all[0], mode, true)
		if reply.Token == 0 {
			t.Fatal("a free name is not granted")
		}
		h := hold(r, reply.Token)
		stands(all[0], h)
		// Held, and renewed, while the clock goes back.
		set(-time.Hour)
		stands(all[0], h)
		set(ttl - time.Second)
		stands(all[0], h)
		// Handed over.
		w, _ := ask(all[1], driver.Exclusive, true)
		set(-time.Hour)
		if err := all[0].Release(ctx, h, 0); err != nil {
			t.Fatal(err)
		}
		rec, err := b.Inspect(ctx, "n")
		if err != nil || len(rec.Holders) != 1 || rec.Holders[0].ID != w.ID || rec.Holders[0].Left < ttl-time.Second {
			t.Fatalf("after the hand-over: %+v, %v", rec, err)
		}
		if rec.Token <= last {
			t.Errorf("token %d after %d", rec.Token, last)
		}
		last = rec.Token
		if err := all[1].Release(ctx, hold(w, rec.Token), 0); err != nil {
			t.Fatal(err)
		}
	}
	// A holder that died before blocks no longer than the clock went back.
	ask(all[0], driver.Exclusive, false)
	set(ttl + time.Microsecond)
	if _, reply := ask(all[1], driver.Exclusive, false); reply.Token == 0 {
		t.Error("an expired lease blocks the name")
	}
}
