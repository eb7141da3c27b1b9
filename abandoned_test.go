package holdfast

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Requests are remembered as long as their grants may last, and the latest of those without a minimum hold. The memory
// that this takes is bounded.
func TestAbandonedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a abandoned
		a.add("kept", time.Now().Add(24*time.Hour))
		for i := range 100_000 {
			a.add(fmt.Sprint(i), time.Time{})
			a.add(fmt.Sprint("k", i), time.Now().Add(time.Second))
			time.Sleep(10 * time.Millisecond)
			if i >= 90 && !a.has(fmt.Sprint("k", i-90)) || i >= mostAbandoned/2 && !a.has(fmt.Sprint(i-mostAbandoned/2+1)) {
				t.Fatalf("one of the last at %d is forgotten", i)
			}
		}
		if n := len(a.recent) + len(a.older); n > mostAbandoned {
			t.Errorf("%d without a minimum hold; want %d at most", n, mostAbandoned)
		}
		if n := len(a.kept); n > 400 {
			t.Errorf("%d with a minimum hold, of which 100 last", n)
		}
		if !a.has("kept") {
			t.Error("the first is forgotten, and lasts")
		}
		if a.has("other") {
			t.Error("an unknown request is on record")
		}
	})
}
