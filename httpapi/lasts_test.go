package httpapi_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// A lease over HTTP lasts a TTL from the grant, or from the last request that names it: the store
// keeps it that long, and the program may trust it for 8 to 9 tenths of that. A heartbeat that does
// not name it keeps only the session.
func TestLengthOfALease(t *testing.T) {
	for what, renew := range map[string]func(p *program, lease string) *answer{
		"grant": nil,
		"renew": func(p *program, lease string) *answer { return p.call("renew", J{"lease": lease}) },
		"heartbeat": func(p *program, lease string) *answer {
			return p.call("sessions/heartbeat", J{"leases": []string{lease}})
		},
	} {
		inBubble(t, nil, func(t *testing.T, c *holdfast.Client, _ *httpapi.Server, p *program) {
			began, a := time.Now(), p.take(1, "x")
			trusted := a.Trusted
			if renew != nil {
				time.Sleep(ttl / 2)
				began = time.Now()
				b := renew(p, a.Lease)
				if trusted = b.Trusted; len(b.Leases) == 1 {
					trusted = b.Leases[0].Trusted
				}
			}
			if trusted < (ttl*8/10).Milliseconds() || trusted > (ttl*9/10).Milliseconds() {
				t.Errorf("%s: the program trusts it for %d ms, want 8 to 9 tenths of %v", what, trusted, ttl)
			}
			free := time.Duration(0)
			for step := 0; free == 0 && time.Since(began) < 3*ttl; step++ {
				if n, _ := holders(t, c, "x"); n == 0 {
					free = time.Since(began)
				}
				if step%25 == 0 {
					p.call("sessions/heartbeat", J{"leases": []string{}}).is(t, 200, "")
				}
				time.Sleep(ttl / 100)
			}
			if free < ttl*9/10 || free > ttl*11/10 {
				t.Errorf("%s: the name was free after %v, want about %v", what, free, ttl)
			}
		})
	}
}
