package signs_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/signs"
)

func TestUnheld(t *testing.T) {
	program := func(h *holdfast.Holder) string { return h.Program }
	exact := func(d time.Duration) string { return d.String() }
	r := &holdfast.Record{}
	if got := signs.Unheld(r, program, exact); got != "Nobody holds it; the first waiter gets it when it asks next." {
		t.Error(got)
	}
	r.FreeIn = time.Second
	r.Partial = []holdfast.Holder{{Program: "a", Left: 9 * time.Second}, {Program: "b", Left: time.Second}}
	const want = "Too few servers of the quorum are free, and no majority of them names one holder. The other " +
		"servers have grants of a for another 9s, b for another 1s. Such a grant stays behind when its program ends while " +
		"the server is away. It ends by itself; break cannot end it. Enough servers are free in 1s. This takes longer if a " +
		"grant is renewed, or if servers are needed that are away."
	if got := signs.Unheld(r, program, exact); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	kept := &holdfast.Record{Partial: []holdfast.Holder{{Program: "a", Left: time.Hour, Kept: true}}}
	const keeps = "Too few servers of the quorum are free, and no majority of them names one holder. The other servers have " +
		"grants of a for another 1h0m0s (a minimum hold). They keep the name after a run, and another server that keeps it " +
		"is away. It becomes free by itself; break cannot free it."
	if got := signs.Unheld(kept, program, exact); got != keeps {
		t.Errorf("%s\nwant %s", got, keeps)
	}
	r.Partial = append(r.Partial, r.Partial...)
	if got := signs.Partial(r, program, exact); got != "a for another 9s, b for another 1s, a for another 9s, others" {
		t.Error(got)
	}
}
