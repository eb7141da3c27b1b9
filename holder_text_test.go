package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// What another client says about itself cannot control a terminal or forge a line of a log.
func TestHolderOfOthersIsOneLine(t *testing.T) {
	const evil = "a\x1b[2J\nroot@db: b"
	for what, h := range map[string]holdfast.Holder{
		`deploy.sh (ci@runner-7:4211) "release 12" for 0s`: {Host: "runner-7", PID: 4211, User: "ci", Program: "deploy.sh",
			Note: "release 12"},
		`"a\x1b[2J\nroot@db: b" ("a\x1b[2J\nroot@db: b"@"a\x1b[2J\nroot@db: b":1) "a\x1b[2J\nroot@db: b" for 0s`: {
			Host: evil, PID: 1, User: evil, Program: evil, Note: evil},
		`another program "b7033f2a:1"`: {Program: "Redisson", Note: "b7033f2a:1", Undated: true},
	} {
		synctest.Test(t, func(t *testing.T) { // time stands still: "for 0s" is exact
			h.Since = time.Now()
			if got := h.String(); got != what {
				t.Errorf("%s\nwant %s", got, what)
			}
		})
	}
}

// The holder that a waiter has seen last is named as that beside an outage, whose text ends with the cause.
func TestErrorNamesTheLastKnownHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holdfast.Holder{Host: "h", PID: 7, Program: "sleep", Since: time.Now()}
		cause := errors.New("connection refused")
		for want, err := range map[string]error{
			`holdfast: lock "a": held by another: sleep (h:7) for 0s`: holdfast.ErrHeld,
			`holdfast: lock "a": store unavailable: connection refused; last known holder: sleep (h:7) for 0s`: fmt.Errorf(
				"%w: %w", holdfast.ErrUnavailable, cause),
			`holdfast: lock "a": outcome unknown: connection refused; last known holder: sleep (h:7) for 0s`: fmt.Errorf(
				"%w: %w", holdfast.ErrUncertain, cause),
			`holdfast: lock "a": context deadline exceeded; held by sleep (h:7) for 0s`: context.DeadlineExceeded,
		} {
			if got := (&holdfast.Error{Op: "lock", Name: "a", Holder: h, Err: err}).Error(); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		kept := &holdfast.Holder{Host: "h", PID: 7, Program: "sleep", Since: time.Now(), Kept: true, Left: time.Second}
		const want = `holdfast: lock "a": context canceled; kept for another 1s after sleep (h:7) for 0s`
		if got := (&holdfast.Error{Op: "lock", Name: "a", Holder: kept, Err: context.Canceled}).Error(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		h.Partial, h.Left = true, 9*time.Second
		for want, err := range map[string]error{
			`holdfast: lock "a": held by another: at too few servers of the quorum, for another 9s: sleep (h:7)`: holdfast.ErrHeld,
			`holdfast: lock "a": context canceled; at too few servers of the quorum, for another 9s: sleep (h:7)`: context.
				Canceled,
		} {
			if got := (&holdfast.Error{Op: "lock", Name: "a", Holder: h, Err: err}).Error(); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
	})
}
