package quorum

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestPartial: grants at single servers are reported if they keep the name from the first waiter.
func TestPartial(t *testing.T) {
	b := ofThree()
	held := func(id string, mode driver.Mode, token uint64, waiters ...driver.Holder) driver.Record {
		return driver.Record{Name: "x", Kind: driver.Lock, Token: token, Waiters: waiters, Waiting: len(waiters),
			Holders: []driver.Holder{{ID: id, Mode: mode, Token: token, Left: 9 * time.Second}}}
	}
	waits := func(mode driver.Mode) driver.Holder { return driver.Holder{ID: "w", Mode: mode} }
	for name, c := range map[string]struct {
		records []driver.Record
		want    int
	}{
		"one server": {[]driver.Record{held("a", driver.Exclusive, 1), {Name: "x"}, {Name: "x"}}, 0},
		"two servers": {[]driver.Record{held("a", driver.Exclusive, 1, waits(driver.Exclusive)),
			held("b", driver.Exclusive, 2, waits(driver.Exclusive)), held("w", driver.Exclusive, 3)}, 2},
		"a holder": {[]driver.Record{held("a", driver.Exclusive, 1), held("a", driver.Exclusive, 1),
			held("b", driver.Exclusive, 2)}, 0},
		"readers before a reader": {[]driver.Record{held("a", driver.Shared, 1, waits(driver.Shared)),
			held("b", driver.Shared, 2, waits(driver.Shared)), {Name: "x"}}, 0},
		"readers before a writer": {[]driver.Record{held("a", driver.Shared, 1, waits(driver.Exclusive)),
			held("b", driver.Shared, 2, waits(driver.Exclusive)), held("w", driver.Exclusive, 3)}, 2},
	} {
		if r := b.merge("x", c.records); len(r.Partial) != c.want {
			t.Errorf("%s: %+v; want %d", name, r.Partial, c.want)
		} else if want := min(time.Duration(c.want), 1) * 9 * time.Second; r.FreeIn != want {
			t.Errorf("%s: free in %v; want %v", name, r.FreeIn, want)
		}
	}
}

// TestWriterBesideReaders: each server names one of the readers that a majority has, and not the same one.
func TestWriterBesideReaders(t *testing.T) {
	r := newRequest(&driver.Request{ID: "w", Name: "x", Mode: driver.Exclusive, N: 1}, 3)
	for i, id := range []string{"a", "b"} {
		r.votes[i].reply.Holder = &driver.Holder{ID: id, Mode: driver.Shared, N: 1}
	}
	if h := r.notYet().Holder; h == nil || h.Partial {
		t.Errorf("two servers with readers: %+v; want one that is not at too few", h)
	}
	r.votes[1].reply.Holder.Mode = driver.Exclusive
	if h := r.notYet().Holder; h == nil || !h.Partial {
		t.Errorf("a reader, and a writer: %+v; want one at too few servers", h)
	}
}
