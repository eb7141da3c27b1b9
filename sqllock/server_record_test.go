package sqllock

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

func TestMint(t *testing.T) {
	for _, c := range []struct {
		floor, now int64
		last       uint64
		n          int
		want       uint64
	}{
		{now: 5000, last: 100, n: 1, want: 5000},
		{now: 5000, last: 100, n: 1000, want: 5000},
		{now: 5000, last: 4500, n: 1000, want: 5500},
		{now: 5000, last: 7000, n: 7, want: 7007},
		{now: 5000, last: 4999, n: 1, want: 5000},
		{floor: 4500, now: 5000, last: 100, n: 1000, want: 5500},
		{floor: 9000, now: 5000, last: 100, n: 1000, want: 10000},
		{now: 5000, n: 1, want: 5000},
		{now: 5000, n: 1000, want: 5999},
		{floor: 4999, now: 5000, n: 1000, want: 5999},
		{floor: 9000, now: 5000, n: 1000, want: 10000},
	} {
		r := &record{floor: c.floor, now: c.now}
		if got := r.mint(c.last, c.n); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A holder that reports a grant which the row does not have gets it back only if a statement can
// have made it: the token is no later than the clock, and the whole block is above the last token.
func TestRecall(t *testing.T) {
	const last, now = 10_000, 20_000
	for token, real := range map[uint64]bool{last: false, last + 1: false, last + 49: false, last + 50: true, now: true,
		now + 1: false} {
		r := &record{now: now, lossy: true, entry: rule.Entry{Kind: driver.Lock, Last: last, Line: []rule.Place{{
			Request: driver.Request{ID: "a", Mode: driver.Exclusive, N: 1, Tokens: 50}, Session: "s.a", Deadline: time.Hour}}}}
		r.recall(driver.Hold{ID: "a", Token: token})
		if is := len(r.entry.Holds) == 1 && r.entry.Last == token && len(r.entry.Line) == 0; is != real {
			t.Errorf("token %d: the entry is %+v", token, r.entry)
		}
		r = &record{now: now, entry: rule.Entry{Kind: driver.Lock, Last: last, Line: []rule.Place{{
			Request: driver.Request{ID: "a", Mode: driver.Exclusive, N: 1}, Session: "s.a", Deadline: time.Hour}}}}
		if r.recall(driver.Hold{ID: "a", Token: token}); len(r.entry.Holds) > 0 {
			t.Errorf("token %d of a server that loses no release: the entry is %+v", token, r.entry)
		}
	}
}
