package rule

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Package drivertest checks the rules in detail through memlock. These cases need a table that is
// set up directly.

const ttl = 10 * time.Second

func entry() *Entry { return &Entry{Mint: func(last uint64, n int) uint64 { return last + uint64(n) }} }

func request(id string, mode driver.Mode, minHold time.Duration) *driver.Request {
	r := &driver.Request{ID: id, Name: "x", Mode: mode, N: 1, Wait: true, MinHold: minHold}
	if mode == driver.Permits {
		r.Limit = 3
	}
	return r
}

func acquire(t *testing.T, e *Entry, now time.Duration, r *driver.Request) uint64 {
	t.Helper()
	token, _, _, err := e.Acquire(now, r, "s", ttl)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		mode                    driver.Mode
		n, limit, holders, used int
		exclusive, want         bool
	}{
		{driver.Exclusive, 1, 0, 0, 0, false, true},
		{driver.Exclusive, 1, 0, 1, 1, false, false},
		{driver.Shared, 1, 0, 0, 0, false, true},
		{driver.Shared, 1, 0, 9, 9, false, true},
		{driver.Shared, 1, 0, 1, 1, true, false},
		{driver.Permits, 2, 3, 1, 1, false, true},
		{driver.Permits, 2, 3, 1, 2, false, false},
	} {
		if got := Fits(c.mode, c.n, c.limit, c.holders, c.used, c.exclusive); got != c.want {
			t.Errorf("Fits(%+v) = %v", c, got)
		}
	}
}

// A kept grant and a new grant of the same request are two: calls of the owner are about the new
// one.
func TestSameRequestBesideItsKeptGrant(t *testing.T) {
	e := entry()
	r := request("a", driver.Permits, 30*time.Second)
	first := acquire(t, e, 0, r)
	second := acquire(t, e, ttl, r) // the lease has expired, the minimum hold has not
	if second == first {
		t.Fatal("an expired lease was revived")
	}
	if ch, _ := e.Renew(ttl, driver.Hold{ID: "a", Token: second}, ttl); ch.State != 0 {
		t.Errorf("Renew of the new grant = %+v", ch)
	}
	if ch, _ := e.Renew(ttl, driver.Hold{ID: "a", Token: first}, ttl); ch.State != driver.Gone {
		t.Errorf("Renew of the old grant = %+v; want Gone", ch)
	}
	if _, err := e.Release(ttl, "a", second, 0); err != nil {
		t.Errorf("Release of the new grant: %v", err)
	}
}

// A cancel does not free a name that an expired grant keeps, even if nothing has called Advance
// since.
func TestCancelLeavesAMinimumHold(t *testing.T) {
	e := entry()
	acquire(t, e, 0, request("a", driver.Exclusive, time.Minute))
	e.Cancel(20*time.Second, "a")
	if token := acquire(t, e, 20*time.Second, request("b", driver.Exclusive, 0)); token != 0 {
		t.Error("the name was free before its minimum hold had passed")
	}
	// A grant that nobody used is not kept.
	e = entry()
	acquire(t, e, 0, request("a", driver.Exclusive, time.Minute))
	e.Cancel(time.Second, "a")
	if token := acquire(t, e, time.Second, request("b", driver.Exclusive, 0)); token == 0 {
		t.Error("a cancelled grant kept the name")
	}
}

// Cancel grants nothing to the request that it cancels.
func TestCancelAtTheHead(t *testing.T) {
	e := entry()
	acquire(t, e, 0, request("a", driver.Exclusive, 0))
	acquire(t, e, time.Second, request("b", driver.Exclusive, 0))
	for _, g := range e.Cancel(ttl, "b") { // a's lease has expired
		t.Errorf("granted %+v", g)
	}
	if e.Used() {
		t.Errorf("in use: %+v", e)
	}
}

func TestLeave(t *testing.T) {
	e := entry()
	acquire(t, e, 0, request("a", driver.Exclusive, 0))
	acquire(t, e, 0, request("b", driver.Exclusive, 0))
	if _, _, _, err := e.Acquire(0, request("c", driver.Exclusive, 0), "other", ttl); err != nil {
		t.Fatal(err)
	}
	grants := e.Leave(time.Second, "s")
	if len(grants) != 1 || grants[0].ID != "c" {
		t.Errorf("granted %+v; want c", grants)
	}
}

func TestLatchIsNoLock(t *testing.T) {
	e := entry()
	if created, _, err := e.SetCount(0, 1); !created || err != nil {
		t.Fatal(created, err)
	}
	if _, _, _, err := e.Acquire(0, request("a", driver.Shared, 0), "s", ttl); !errors.Is(err, driver.ErrKind) {
		t.Errorf("Acquire of a latch: %v", err)
	}
	if _, err := e.SetLimit(0, 3); !errors.Is(err, driver.ErrKind) {
		t.Errorf("SetLimit of a latch: %v", err)
	}
}
