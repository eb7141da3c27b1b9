package holdfast_test

import (
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
