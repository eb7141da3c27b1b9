package quorum

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestMergeHistories merges histories in which each entry is a letter, with its age in seconds.
func TestMergeHistories(t *testing.T) {
	for what, c := range map[string]struct {
		keep  int
		lists []string
		want  string
	}{
		"none":                               {9, []string{"", ""}, ""},
		"the same":                           {9, []string{"a9 b8 c7", "a9 b8 c7"}, "abc"},
		"each misses one":                    {9, []string{"a9 b8", "b8 c7", "a9 c7"}, "abc"},
		"one has nothing":                    {9, []string{"", "a9 b8"}, "ab"},
		"one is late":                        {2, []string{"b8 c7", "a9 b8", "b8 c7"}, "bc"},
		"one missed the newest for long":     {3, []string{"a9 b8 c7", "d3 e2 f1", "d3 e2 f1"}, "def"},
		"no one has all":                     {9, []string{"a9", "b8"}, "ab"},
		"one got the first late":             {9, []string{"a9 b8", "b8 a7", "a9 b8"}, "ab"},
		"one of two got the first late":      {9, []string{"b8 a7", "a9 b8"}, "ab"},
		"a clock that was set":               {9, []string{"a0 b0 c0", "a9 b8 c7", "a9 b8 c7"}, "abc"},
		"a clock that was set, and a gap":    {9, []string{"a0 c0", "a9 b8 c7", "b8 c7"}, "abc"},
		"most of them count, not the ages":   {9, []string{"b9 a8", "a5 b4", "a5 b4"}, "ab"},
		"a chain over three servers":         {9, []string{"a1 b1", "b5 c5", "c9 d9"}, "abcd"},
		"three in a circle":                  {9, []string{"a9 b5", "b5 c1", "c1 a9"}, "abc"},
		"the longest that is kept is longer": {2, []string{"a9 b8", "c7 d6"}, "cd"},
	} {
		now := time.Now()
		var lists []list
		for _, text := range c.lists {
			l := list{at: now}
			for e := range strings.FieldsSeq(text) {
				age := time.Duration(e[1]-'0') * time.Second
				l.entries = append(l.entries, redislock.KeptEntry{Entry: driver.Entry{Text: e[:1], Age: age}, Keep: c.keep})
			}
			lists = append(lists, l)
		}
		got := ""
		merged := mergeHistories(lists, now)
		for _, e := range merged {
			got += e.Text
		}
		if got != c.want {
			t.Errorf("%s: %q; want %q", what, got, c.want)
		}
		if !slices.IsSortedFunc(merged, func(a, b driver.Entry) int { return int(b.Age - a.Age) }) {
			t.Errorf("%s: ages of %+v", what, merged)
		}
	}
}

// TestMergeLongHistories: the longest histories of the largest quorum, in each of which every tenth
// entry is missing, are merged.
func TestMergeLongHistories(t *testing.T) {
	lists := make([]list, MaxServers)
	for i := range lists {
		lists[i].at = time.Now()
		for k := range driver.MaxHistory {
			if k%10 != i {
				lists[i].entries = append(lists[i].entries, redislock.KeptEntry{
					Entry: driver.Entry{Text: fmt.Sprint(k), Age: time.Duration(driver.MaxHistory-k) * time.Second},
					Keep:  driver.MaxHistory})
			}
		}
	}
	merged := mergeHistories(lists, time.Now())
	if len(merged) != driver.MaxHistory {
		t.Errorf("%d entries; want %d", len(merged), driver.MaxHistory)
	}
	for k, e := range merged {
		if e.Text != fmt.Sprint(k) {
			t.Fatalf("entry %d is %s", k, e.Text)
		}
	}
}

func BenchmarkMergeHistories(b *testing.B) {
	lists := make([]list, MaxServers)
	for i := range lists {
		for k := range driver.MaxHistory {
			lists[i].entries = append(lists[i].entries, redislock.KeptEntry{
				Entry: driver.Entry{Text: fmt.Sprint(k), Age: time.Duration(driver.MaxHistory - k)}, Keep: driver.MaxHistory})
		}
	}
	for b.Loop() {
		mergeHistories(lists, time.Time{})
	}
}
