package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestVoteEndedBeforeTheGrant: only server 2 has granted a waiting request, and that grant ends. Later a majority
// grants the request. The session claims server 2 soon, and not only at the next renewal: until then the minimum
// hold depends on a bare majority.
func TestVoteEndedBeforeTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		for i := range 2 {
			w.votesFor(s, i, "b", 0, 20*time.Second)
		}
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: time.Hour}
		reply, err := s.Acquire(t.Context(), req)
		if n := w.has("a"); err != nil || reply.Token != 0 || n != 1 {
			t.Fatal(reply, err, n)
		}
		w.keepsFor(s, 2, "c", time.Hour)
		time.Sleep(10 * time.Second)
		if changes, err := s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a"}}); err != nil || len(changes) != 1 ||
			changes[0].State != driver.Waiting {
			t.Fatal(changes, err)
		}
		time.Sleep(10 * time.Second) // b's lease is over
		if changes, err := s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a"}}); err != nil || len(changes) != 1 ||
			changes[0].State != driver.Granted {
			t.Fatal(changes, err)
		}
		time.Sleep(time.Second)
		if n := w.has("a"); n != 3 {
			t.Errorf("%d servers have granted the request; want 3", n)
		}
	})
}
