package quorum

import (
	"testing"
	"testing/synctest"
)

// TestAskedAfterRelease: a bare majority has granted a request, and a goroutine is about to ask the
// other server. Before it does, the grant is released. No server has a grant in the end.
func TestAskedAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holding(t, 3)
		r := s.find(h.ID)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		s.askOne(r, s.endpoints[r.order[2]], s.stamp.Add(1), s.clock.propose())
		for _, v := range w.servers {
			v.isFree(t)
		}
	})
}
