package cli

import (
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/keeper"
)

// TestLastRequestIsAnswered: a keeper ends right after a release. Whoever asked for it hears so.
func TestLastRequestIsAnswered(t *testing.T) {
	for range 1000 {
		k := &keeping{asked: make(chan ask), over: make(chan struct{})}
		go func() {
			q := <-k.asked
			q.reply <- &keeper.Answer{State: keeper.Released}
			close(k.over)
		}()
		if a := k.request(keeper.Release); a == nil || a.State != keeper.Released {
			t.Fatalf("the answer is %v", a)
		}
		if a := k.request(keeper.Check); a != nil {
			t.Fatalf("a keeper that has ended answers %v", a)
		}
	}
}
