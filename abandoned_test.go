package holdfast

import (
	"fmt"
	"testing"
)

// The latest requests are on record, more of those with a minimum hold, and the two do not push each other out. The
// memory that this takes is bounded.
func TestAbandonedIsBounded(t *testing.T) {
	var a abandoned
	a.add("kept", true)
	for i := range 3 * mostKept {
		a.add(fmt.Sprint(i), false)
		if i < mostKept/2-1 {
			a.add(fmt.Sprint("k", i), true)
		}
		if i >= mostOthers/2 && !a.has(fmt.Sprint(i-mostOthers/2+1)) {
			t.Fatalf("one of the last at %d is forgotten", i)
		}
	}
	if !a.has("kept") || !a.has("k7") || a.has("k") {
		t.Errorf("kept %v, k7 %v, k %v; want only the first two", a.has("kept"), a.has("k7"), a.has("k"))
	}
	if n := len(a.others.latest) + len(a.others.older); n > mostOthers {
		t.Errorf("%d without a minimum hold; want %d at most", n, mostOthers)
	}
	for i := range 3 * mostKept {
		a.add(fmt.Sprint("more", i), true)
	}
	if n := len(a.kept.latest) + len(a.kept.older); n > mostKept || a.has("kept") {
		t.Errorf("%d with a minimum hold; want %d at most, and not the first", n, mostKept)
	}
}
