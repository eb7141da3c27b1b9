package redislock_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/redislock"
)

// A renewal of a grant that was yielded may be answered after the name was handed back to the same
// request. Its answer is about the older grant: the session goes on to know the newer one.
func TestLateRenewal(t *testing.T) {
	if !redislock.LateRenewal("a", 1_000_000, 1_000_007) {
		t.Error("an answer about an older grant has ended a newer one, or one about the newer one has not")
	}
}
