package interop

import (
	"path/filepath"
	"strings"
	"testing"
)

// On either side, a contender that finds the marker of one that it excludes reports it.
func TestMarkersShowOverlap(t *testing.T) {
	w := newWorld(t)
	actors := []*actor{w.peer(curator).actor("a", longSession), w.peer(ours).actor("a", longSession)}
	for _, c := range []struct {
		kind, marker string
		overlap      bool
	}{
		{"mutex", "writer", true},
		{"mutex", "readers/x", true},
		{"mutex", "nobody", false},
		{"write", "writer", true},
		{"write", "readers/x", true},
		{"read", "writer", true},
		{"read", "readers/x", false},
		{"semaphore", "slots/0", true},
		{"semaphore", "writer", false},
	} {
		for _, a := range actors {
			counter, log := prepared(t)
			if err := create(filepath.Join(filepath.Dir(counter), c.marker), "x"); err != nil {
				t.Fatal(err)
			}
			a.Send("rounds", c.kind, "-", 1, counter, log, 1)
			if r := a.Reply(); strings.Contains(r, "overlap: ") != c.overlap || strings.HasPrefix(r, "ok ") == c.overlap {
				t.Errorf("%s: %s during %s: %s", a, c.kind, c.marker, r)
			}
		}
	}
}

func prepared(t *testing.T) (counter, log string) {
	t.Helper()
	counter, log, err := prepare(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return counter, log
}
