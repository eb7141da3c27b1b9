package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast"
)

// The message about a close that failed has one prefix, and says what becomes of a lock if the store has
// not answered.
func TestUnclosed(t *testing.T) {
	const ends = "; a lock that this process still has there ends by itself, with its lease"
	for want, err := range map[string]error{
		"closing the store: outcome unknown: no answer in time" + ends: fmt.Errorf("holdfast: close: %w: no answer in time",
			holdfast.ErrUncertain),
		"closing the store: no answer in time" + ends:       context.DeadlineExceeded,
		"closing the store: the disk is full":               errors.New("the disk is full"),
		"closing the store: store unavailable: away" + ends: fmt.Errorf("holdfast: close: %w: away", holdfast.ErrUnavailable),
	} {
		if got := unclosed(err); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
