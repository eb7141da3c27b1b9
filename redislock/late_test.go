package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/redislock"
)

// A renewal of a grant that was yielded may be answered after the name was handed back to the same
// request. Its answer is about the older grant: the session goes on to know the newer one.
func TestLateRenewal(t *testing.T) {
	if !redislock.LateRenewal("a", 1_000_000, 1_000_007) {
		t.Error("an answer about an older grant has ended a newer one, or one about the newer one has not")
	}
}

// A member's session forgets a cancellation without an answer after some time. The cancellation may still
// arrive, so the session relies on no grant that it ends.
func TestCancellationAfterHours(t *testing.T) {
	for what, after := range map[string]time.Duration{"soon": time.Second, "after hours": 24 * time.Hour} {
		const limit = 1_000_000
		token, known := redislock.CancelledUpTo(after, limit)
		if token != limit || known != 0 && after > time.Hour {
			t.Errorf("%s: the session relies on no token up to %d; want %d; it remembers %d cancellations", what, token,
				limit, known)
		}
	}
}
