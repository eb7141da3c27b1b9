package rueidisconn

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestAskDuringRedial: a replica has refused a request, so its connections are about to be closed.
// The next question is not lost with them: it waits for a new connection.
func TestAskDuringRedial(t *testing.T) {
	t.Parallel()
	made, err := Dial(testenv.Redis(t).URL() + "?dial-timeout=1m&read-timeout=1m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	c := made.(*conn)
	id := func() int64 {
		for end := time.Now().Add(time.Minute); ; {
			answer := redislock.Ask(t.Context(), c, "CLIENT", "ID")[0]
			if answer.Err == nil {
				return answer.Value.Int
			}
			if time.Now().After(end) {
				t.Fatal(answer.Err)
			}
		}
	}
	before := id()
	if err := c.connections.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.redial() // it waits for this exchange, but not for ever
	if after := id(); after <= before {
		t.Errorf("answered on connection %d, which is being closed", after)
	}
	c.connections.end()
}
