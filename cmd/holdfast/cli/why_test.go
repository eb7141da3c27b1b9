package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// info and ls --stale say what is in the way of a name.
func TestWhy(t *testing.T) { synctest.Test(t, testWhy) } // its clock stands still

func testWhy(t *testing.T) {
	at := func(pid int, age, left, lease time.Duration) holdfast.Holder {
		return holdfast.Holder{Host: "h", PID: pid, User: "u", Since: time.Now().Add(-age), Left: left, Lease: lease,
			Token: 7, Permits: 1}
	}
	const second = time.Second
	alive, stopped := at(1, time.Minute, 13*second, 15*second), at(2, time.Minute, 5*second, 15*second)
	kept, over := at(3, time.Minute, time.Hour, 15*second), at(4, time.Minute, 0, 15*second)
	kept.Kept = true
	old, unknown := at(5, 3*time.Hour, 13*second, 15*second), at(6, time.Minute, 15*second, 15*second)
	bounded, ending, program := stopped, stopped, stopped
	bounded.MaxHold, ending.MaxHold = time.Hour, 65*second
	program.MaxHold, program.Labels = 15*second, map[string]string{"http-session": "a1"}
	idle := alive
	idle.Sticky, idle.Tokens = 90*second, 64
	wants3 := alive
	wants3.Permits = 3
	few := func(list ...holdfast.Holder) []holdfast.Holder { return list }
	for name, c := range map[string]struct {
		r     holdfast.Record
		says  []string // all of them, in any order
		stale string   // "": it is not
	}{
		"free": {holdfast.Record{}, nil, ""},
		"alive": {holdfast.Record{Kind: "lock", Holders: few(alive)},
			[]string{"u@h:1 has held it for 1m0s and renewed its lease 2s ago"}, ""},
		"sticky": {holdfast.Record{Kind: "lock", Holders: few(idle)}, []string{"renewed its lease 2s ago: it was alive then",
			"It may be idle: its process keeps it for up to 1m30s after each release (Sticky)",
			"It may use 64 tokens: 7, which holdfast break wants, is the largest"}, ""},
		"unknown": {holdfast.Record{Kind: "lock", Holders: few(unknown)}, []string{"when it renewed last is not known"}, ""},
		"servers of a quorum with grants of others": {holdfast.Record{Kind: "lock", Waiting: 1, Waiters: few(alive),
			Partial: few(stopped)}, []string{"Too few servers of the quorum are free", "grants of u@h:2 for another 5s."},
			"too few servers of the quorum are free: the grant of u@h:2 not renewed for 10s"},
		"kept by servers of a quorum": {holdfast.Record{Kind: "lock", Partial: few(kept)},
			[]string{"Too few servers of the quorum are free"}, "too few servers of the quorum are free: some keep it for "},
		"nobody waits beside one": {holdfast.Record{Kind: "lock", Partial: few(alive)},
			[]string{"Too few servers of the quorum are free"}, ""},
		"stopped": {holdfast.Record{Kind: "lock", Holders: few(stopped)},
			[]string{"has not renewed for 10s of a lease of 15s: it is stopped",
				"the store frees the name in 5s. Sooner: holdfast break 'a b' --token 7"},
			"not renewed for 10s of a lease of 15s"},
		"stopped, with a maximum hold": {holdfast.Record{Kind: "lock", Holders: few(bounded)},
			[]string{"u@h:2, which holds it, has not renewed for 10s of a lease of 15s"}, "not renewed for 10s of a lease of 15s"},
		"at the end of its maximum hold": {holdfast.Record{Kind: "lock", Holders: few(ending)},
			[]string{"when it renewed last is not known"}, ""},
		"a program of the HTTP API": {holdfast.Record{Kind: "lock", Holders: few(program)},
			[]string{"A program (session a1 of the HTTP API at u@h:2), which holds it, has not renewed for 10s"},
			"not renewed for 10s of a lease of 15s"},
		"over": {holdfast.Record{Kind: "lock", Holders: few(over)},
			[]string{"the next request takes the name"}, "not renewed for 15s"},
		"kept": {holdfast.Record{Kind: "lock", Holders: few(kept)},
			[]string{"Nobody holds it. It stays taken for another 1h0m",
				"To free it now: holdfast break 'a b' --token 7"}, ""},
		"long": {holdfast.Record{Kind: "lock", Holders: few(old), Waiters: few(alive), Waiting: 1},
			[]string{"it was alive then", "unusually long (--long 1h)", "process 5 on h", "or: holdfast break"},
			"held for over 1h, and 1 wait"},
		"long, nobody waits": {holdfast.Record{Kind: "lock", Holders: few(old)}, []string{"unusually long"}, ""},
		"dead waiter": {holdfast.Record{Kind: "lock", Holders: few(alive), Waiters: few(alive, stopped), Waiting: 2},
			[]string{"Waiter 2, u@h:2, has not renewed for 10s", "loses its place in 5s"}, "waiter 2, u@h:2, not renewed"},
		"foreign": {holdfast.Record{Kind: "lock", Holders: few(holdfast.Holder{Since: time.Now()})},
			[]string{"Another program holds it"}, ""},
		"too many permits": {holdfast.Record{Kind: "semaphore", Limit: 2, Holders: few(alive),
			Waiters: few(wants3), Waiting: 1},
			[]string{"wants 3 permits, and the limit is 2"}, ""},
		"permits free": {holdfast.Record{Kind: "semaphore", Limit: 3, Holders: few(alive),
			Waiters: few(wants3), Waiting: 1},
			[]string{"2 permits are free, and the first waiter wants 3"}, ""},
		"limit only": {holdfast.Record{Kind: "semaphore", Limit: 3, LimitSet: true}, []string{"It is free"}, ""},
		"latch":      {holdfast.Record{Kind: "latch", Count: 2}, []string{"after 2 more"}, ""},
		"damaged":    {holdfast.Record{Damaged: "x"}, nil, "damaged: "},
	} {
		c.r.Name = "a b"
		said := strings.Join(why(&c.r, unusuallyLong), "\n")
		for _, want := range c.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q lacks %q", name, said, want)
			}
		}
		if len(c.says) == 0 && said != "" {
			t.Errorf("%s: %q", name, said)
		}
		if got := suspicious(&c.r, unusuallyLong); (got == "") != (c.stale == "") || !strings.HasPrefix(got, c.stale) {
			t.Errorf("%s: stale %q, want %q", name, got, c.stale)
		}
	}
	if got := typed("a\x1b[2J"); got != "NAME" {
		t.Errorf("%q", got)
	}
}

// A hash under the name may be a lock of Redisson, which holdfast can share.
func TestBesideText(t *testing.T) {
	for key, hint := range map[string]bool{`key "x" (hash, expires in 15s)`: true, `key "x" (string)`: false} {
		got := besideText([]string{key})
		if !strings.Contains(got, key) || strings.Contains(got, "dialect=redisson") != hint {
			t.Errorf("%s: %s", key, got)
		}
	}
}
