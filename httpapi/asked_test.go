package httpapi_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// A program learns that an operator asks it to release, and that one has broken its lock.
func TestAsked(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		a := p.take(1, "a")
		token, err := strconv.ParseUint(a.Token, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Revoke(t.Context(), "a", token, "the deploy waits"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2)
		if x := p.call("renew", J{"lease": a.Lease}); x.status != 200 || !strings.Contains(x.Asked, "the deploy waits") {
			t.Errorf("%+v", x)
		}
		if err := c.Break(t.Context(), "a", token, "it hangs"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2)
		x := p.call("renew", J{"lease": a.Lease})
		if x.status != 410 || x.Error.Reason != "broken" || !strings.Contains(x.Error.Message, "it hangs") {
			t.Errorf("%+v", x)
		}
	})
}
