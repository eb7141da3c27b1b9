package drivertest

import (
	"slices"
	"testing"
)

// A selection with a check that does not exist is an error.
func TestUnknown(t *testing.T) {
	if got := unknown([]string{"handed over", "no such check", "locks only"}); !slices.Equal(got,
		[]string{"no such check"}) {
		t.Errorf("unknown: %q; want the one that no check has", got)
	}
}
