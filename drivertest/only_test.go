package drivertest

import (
	"slices"
	"testing"
)

// TestUnknown: a selection that names a check which does not exist is found out.
func TestUnknown(t *testing.T) {
	if got := unknown([]string{"handed over", "no such check", "locks only"}); !slices.Equal(got, []string{"no such check"}) {
		t.Errorf("unknown: %q; want the one that no check has", got)
	}
}
