package quorum_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestListOneDamaged: List gets the answers of the server with a damaged record and of one other
// before that of the third. It does not leave out the lock, which two servers know.
func TestListOneDamaged(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	a := open(t, g.backend(g.addrs()), "a", time.Minute)
	h := get(t, a, try("x", "a-x"))
	g.everywhere(t, "x", renewals(t, a, h))
	retype(t, g.servers[1], g.record("x"))
	back := g.backend(g.addrs())
	if _, err := back.Inspect(within(t), "x"); err != nil { // connects to all
		t.Fatal(err)
	}
	g.servers[2].Pause()
	defer g.servers[2].Continue()
	time.AfterFunc(time.Second, g.servers[2].Continue)
	list, err := back.List(within(t), "", "", 10)
	if err != nil || len(list) != 1 || list[0].Kind != driver.Lock || list[0].Damaged != "" {
		t.Errorf("List: %+v, %v; want the lock", list, err)
	}
}
