//go:build unix

package main_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/keeper"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A keeper whose lease has ended at a silent store says so at once. The close of its session takes
// three seconds there.
func TestHoldAnswersWhileItCloses(t *testing.T) {
	b := newBench(t).runtimeDir()
	r := testenv.Redis(t)
	b.env = append(b.env, "HOLDFAST_URL="+r.URL())
	v := b.keep("--ttl", "4s", "a")
	r.Pause()
	var longest time.Duration
	b.until("the keeper reports the loss", func() bool {
		begin := time.Now()
		h, err := keeper.Ask(v["HOLDFAST_HOLD"], keeper.Check)
		longest = max(longest, time.Since(begin))
		return err == nil && h.State == keeper.Ended
	})
	if longest > 2*time.Second {
		t.Errorf("an answer took %v", longest)
	}
	b.with(v.env()...).want(76, "release")
}
