package watchers

import (
	"slices"
	"testing"
)

func TestDiff(t *testing.T) {
	before := map[string]string{"same": "1", "changed": "1", "gone": "1"}
	var got []string
	Diff(before, map[string]string{"same": "1", "changed": "2", "new": "1"}, func(name string) { got = append(got, name) })
	if slices.Sort(got); !slices.Equal(got, []string{"changed", "gone", "new"}) {
		t.Errorf("%q", got)
	}
}
