package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// Each order puts first what needs attention.
func TestOrders(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	all := []holdfast.Record{
		{Name: "a", Holders: []holdfast.Holder{{Since: ago(time.Hour), Left: 10 * time.Second}}},
		{Name: "b", Holders: []holdfast.Holder{{Since: ago(time.Minute), Left: 14 * time.Second}, {Since: ago(time.Second),
			Left: time.Second}}, Waiting: 5},
		{Name: "c", Holders: []holdfast.Holder{{Since: ago(10 * time.Minute), Left: 12 * time.Second}}, Waiting: 2},
		{Name: "d", Waiting: 1, Waiters: []holdfast.Holder{{Since: ago(time.Hour)}}}, // and nobody gets it
	}
	for key, want := range map[order]string{
		"name": "abcd", "held": "acbd", "lease": "bacd", "waiting": "bcda", "trouble": "dcba",
	} {
		sorted := slices.Clone(all)
		slices.SortStableFunc(sorted, func(x, y holdfast.Record) int { return key.compare(&x, &y) })
		got := ""
		for _, r := range sorted {
			got += r.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// A screen fits the terminal, and shows that the store does not answer.
func TestScreen(t *testing.T) {
	var all []holdfast.Record
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, holdfast.Record{Name: name, Kind: "lock", Waiting: 2})
	}
	shown := func(err error, lines int) []string {
		text := screen("redis:h", all, err, &lsOptions{out: "table"}, 40, lines)
		text = strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(text)
		return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	if got := shown(nil, 24); len(got) != 7 || !strings.HasSuffix(got[0], " redis:h: 5 in use, 10 waiting") {
		t.Errorf("%q", got)
	}
	got := shown(errors.New("no route\nto host"), 6)
	if len(got) != 5 || got[4] != "… and 4 more" || got[1] != "the list is an older one: no route; to …" {
		t.Errorf("%q", got)
	}
	for _, line := range got {
		if len([]rune(line)) > 40 {
			t.Errorf("%q is too long", line)
		}
	}
}
