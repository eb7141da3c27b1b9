//go:build unix

package main_test

import (
	"strings"
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
	var took time.Duration // of the first answer after the loss
	b.until("the keeper reports the loss", func() bool {
		begin := time.Now()
		h, err := keeper.Ask(v["HOLDFAST_HOLD"], keeper.Check)
		took = time.Since(begin)
		return err == nil && h.State == keeper.Ended
	})
	if took > 2*time.Second {
		t.Errorf("the answer took %v", took)
	}
	b.with(v.env()...).want(76, "release")
}

// A release that waits for a silent store says so, and then that the store has not confirmed it.
func TestReleaseAtASilentStore(t *testing.T) {
	b := newBench(t).runtimeDir()
	r := testenv.Redis(t)
	// Otherwise the client gives the connection up after three seconds or later, which the warning must precede.
	b.env = append(b.env, "HOLDFAST_URL="+r.URL()+"?read-timeout=1m")
	v := b.keep("a")
	pid := keeperOf(b, v)
	r.Pause()
	_, stderr := b.with(v.env()...).want(69, "release")
	if !strings.Contains(stderr, "holdfast: a: its keeper has not confirmed the release for 2s; it waits for the store, or it is stopped\n") ||
		!strings.Contains(stderr, "a: the store has not confirmed the release; the lock expires by itself: ") {
		t.Error(stderr)
	}
	b.ends(pid)
}

// A command under adopt or run sees no hold that is over, or that is of the command's own lock. It sees
// the hold that surrounds it.
func TestHoldOfCommands(t *testing.T) {
	b := newBench(t).runtimeDir()
	seen := func(b *bench, args ...string) string {
		b.Helper()
		out, _ := b.want(0, append(args, "--", "sh", "-c", `printf %s "$HOLDFAST_HOLD"`)...)
		return out
	}
	v := b.keep("a")
	in := b.with(v.env()...)
	if got := seen(in, "run", "b"); got != v["HOLDFAST_HOLD"] {
		t.Errorf("run of another lock inside a hold: %q", got)
	}
	in.want(0, "run", "b", "--", "sh", "-c", "$H check")
	ticket, _ := in.want(0, "handoff")
	if got := seen(in, "adopt", strings.TrimSpace(ticket)); got != "" {
		t.Errorf("adopt of a hold: %q", got)
	}
	if got := seen(in, "run", "a"); got != "" { // the keeper stays
		t.Errorf("run of a lock that was handed off: %q", got)
	}
	in.want(0, "release")
	if got := seen(in, "run", "b"); got != "" {
		t.Errorf("run after the hold: %q", got)
	}
}
