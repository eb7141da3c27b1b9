package sqlite

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestSQLiteAhead asks for positions in queues with gaps at the head, in the middle and at the end:
// of a few places at once and of many.
func TestSQLiteAhead(t *testing.T) {
	s := openTestSession(t, openTest(t, storePath(t), nil), time.Hour)
	ctx := context.Background()
	first := exclusive("x")
	h := granted(t, s, first)
	var line []*driver.Request
	join := func(n int) {
		for range n {
			r := exclusive("x")
			queued(t, s, r)
			line = append(line, r)
		}
	}
	check := func() {
		t.Helper()
		places := make([]driver.Hold, len(line))
		for i, r := range line {
			places[i] = driver.Hold{Name: "x", ID: r.ID}
		}
		for _, some := range [][]driver.Hold{places, places[len(places)-3:]} {
			changes, err := s.Renew(ctx, some)
			must(t, err)
			if len(changes) != len(some) {
				t.Fatalf("%d changes of %d places", len(changes), len(some))
			}
			for _, ch := range changes {
				if want := ch.Index + len(places) - len(some); ch.State != driver.Waiting || ch.Ahead != want || ch.Retry <= 0 {
					t.Errorf("%+v; want %d ahead", ch, want)
				}
			}
		}
		for _, i := range []int{0, len(line) / 2, len(line) - 1} {
			rep, err := s.Acquire(ctx, line[i])
			must(t, err)
			if rep.Ahead != i {
				t.Errorf("%d ahead of place %d", rep.Ahead, i)
			}
		}
	}
	leave := func(i int) {
		must(t, s.Cancel(ctx, "x", line[i].ID))
		line = slices.Delete(line, i, i+1)
	}
	join(20)
	check()
	rep, err := s.Acquire(ctx, line[0])
	must(t, err)
	must(t, s.Release(ctx, h, 0))
	<-rep.Wake
	line = line[1:]
	check()
	leave(0)
	check()
	leave(7)
	check()
	leave(len(line) - 1)
	join(2)
	check()
}
