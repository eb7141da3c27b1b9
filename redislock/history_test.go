package redislock_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// FuzzDecodeHistory: decoding any answer of a server results in entries, or in an error.
func FuzzDecodeHistory(f *testing.F) {
	for _, seed := range []string{
		`[]`, `["a","1790000000000004",1790000000000000]`, `["a","1000000","b","2000999",1790000000000000]`,
		`["a","inf",7]`, `["a","-5",7]`, `["a","1.5",7]`, `["a","1e300",7]`, `["a",7]`, `["a","7"]`, `[7,"7",7]`, `"a"`, `7`,
		`["a","0",10000000000000000]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var raw any
		if json.Unmarshal([]byte(text), &raw) != nil {
			return
		}
		v := value(raw)
		entries, err := redislock.DecodeHistory("n", v)
		if err == nil && len(entries) != len(v.List)/2 {
			t.Errorf("%s: %d entries", text, len(entries))
		}
		for _, e := range entries {
			if e.Age < 0 || e.Keep < 1 || e.Keep > driver.MaxHistory || !utf8.ValidString(e.Text) {
				t.Errorf("%s: %+v", text, e)
			}
		}
	})
}

// server is what a server says that has lost a record.
type server struct {
	up                            time.Duration
	evicted, flushed, limit, used int64
	copied, again, indexed        bool
	policy                        string
	oldest                        time.Duration // of the history; 0: none
}

func (s server) answer() redislock.Value {
	const now = 1_790_000_000_000_000
	v := redislock.Value{Kind: redislock.List}
	number := func(n int64) { v.List = append(v.List, redislock.Value{Kind: redislock.Int, Int: n}) }
	text := func(s string) { v.List = append(v.List, redislock.Value{Kind: redislock.Text, Text: s}) }
	yes := func(b bool) {
		if b {
			number(1)
		} else {
			number(0)
		}
	}
	for _, n := range []int64{int64(s.up / time.Second), s.evicted, s.flushed, s.limit, s.used} {
		number(n)
	}
	yes(s.copied)
	yes(s.again)
	yes(s.indexed)
	number(now)
	text(s.policy)
	if s.oldest > 0 {
		text(fmt.Sprint(now - s.oldest.Microseconds()/1000*1000 + 4))
	} else {
		text("")
	}
	return v
}

// TestWhyLost: what is concluded from each combination of facts, for a record of a minute ago.
func TestWhyLost(t *testing.T) {
	for what, c := range map[string]struct {
		server
		want driver.Cause
	}{
		"removed":                         {server{up: time.Hour, indexed: true}, driver.CauseDeleted},
		"removed, long after a flush":     {server{up: time.Hour, indexed: true, flushed: 1}, driver.CauseDeleted},
		"removed, and taken again":        {server{up: time.Hour, indexed: true, again: true}, driver.CauseDeleted},
		"removed, after a full restart":   {server{up: time.Hour, indexed: true, copied: true}, driver.CauseUnknown},
		"removed with all that was there": {server{up: time.Hour}, driver.CauseUnknown},
		"flushed":                         {server{up: time.Hour, flushed: 1}, driver.CauseFlushed},
		"flushed, and taken again": {server{up: time.Hour, flushed: 1, again: true,
			indexed: true}, driver.CauseFlushed},
		"flushed soon after a restart": {server{up: time.Second, flushed: 1}, driver.CauseFlushed},
		"removed, and the history is older": {server{up: time.Hour, flushed: 1, again: true, indexed: true,
			oldest: time.Hour}, driver.CauseDeleted},
		"flushed, and the history is new": {server{up: time.Hour, flushed: 1, again: true, indexed: true,
			oldest: time.Second}, driver.CauseFlushed},
		"restarted":                       {server{up: time.Second}, driver.CauseRestarted},
		"restarted with older data":       {server{up: time.Second, indexed: true, oldest: time.Hour}, driver.CauseRestarted},
		"restarted from a file of a copy": {server{up: time.Second, copied: true}, driver.CauseRestarted},
		"evicted": {server{up: time.Hour, evicted: 1, limit: 1000, used: 990, policy: "allkeys-lru", indexed: true},
			driver.CauseEvicted},
		"evicted, with the index, long after a flush": {server{up: time.Hour, evicted: 1, flushed: 1, limit: 1000, used: 990,
			policy: "allkeys-lru"}, driver.CauseEvicted},
		"flushed, long after evictions": {server{up: time.Hour, evicted: 1, flushed: 1, limit: 1000, used: 100,
			policy: "allkeys-lru"}, driver.CauseFlushed},
		"removed, long after evictions": {server{up: time.Hour, evicted: 1, limit: 1000, used: 100, policy: "noeviction",
			indexed: true}, driver.CauseDeleted},
		"failed over":                     {server{up: time.Hour, copied: true}, driver.CauseUnknown},
		"failed over, long after a flush": {server{up: time.Hour, copied: true, flushed: 1}, driver.CauseUnknown},
	} {
		if got, ok := redislock.WhyLost(c.answer(), time.Minute); !ok || got != c.want {
			t.Errorf("%s: %q, %v; want %q", what, got, ok, c.want)
		}
	}
	for _, v := range []redislock.Value{{}, {Kind: redislock.List}, {Kind: redislock.Int, Int: 7},
		server{up: -time.Second}.answer()} {
		if got, ok := redislock.WhyLost(v, time.Minute); ok {
			t.Errorf("%+v: %q; want nothing", v, got)
		}
	}
}
