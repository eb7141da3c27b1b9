package mutant

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// client are bugs of the portable client.
var client = []Mutant{
	{
		ID: "client-no-clock", Store: Redis, Class: in(history.S2),
		Bug: "a lease counts as valid until the store reports its end: its time is not checked",
		Edits: []Edit{
			{"watch.go", `for len(c.leases) > 0 && c.leases[0].until <= now {`,
				`for len(c.leases) > 0 && c.leases[0].latest <= now {`},
			{"watch.go", `c.wakeAt = min(c.leases[0].until, now+min(`, `c.wakeAt = min(now+min(`},
			{"lease.go", `		case now >= x.until:`, `		case now >= x.latest:`},
		},
		Run: Run{For: 16 * time.Second},
	},
	{
		ID: "client-hand-over-from-now", Store: Redis, Class: in(history.S2),
		Bug:   "a lease that was handed over counts from the push, not from the last proof of the place in the queue",
		Edits: []Edit{{"await.go", "return token, a.lastProof(), nil", "return token, c.coarseNow(), nil"}},
		Run:   Run{For: 32 * time.Second}, // it shows once or twice in 16 s
	},
	{
		ID: "client-trust-too-long", Store: SQLite, Class: in(history.S2),
		Bug:   "a lease is trusted four times as long as the store keeps it",
		Edits: []Edit{{"client.go", `return s.ttl - s.margin`, `return 4*s.ttl - s.margin`}},
		Run:   Run{For: 16 * time.Second},
	},
	{
		ID: "client-ghost-in-line", Store: Redis, Class: in(history.L1, history.L2),
		Bug: "a cancelled wait stays in the queue and in the renewals",
		Edits: []Edit{
			{"await.go", "		c.stopRenewing(a.wait)\n		if !ended {", "		if !ended {"},
			{"await.go", `			if stop != nil && a.asked && !(err == nil && a.bequeath(sent, reply)) {
				a.l.cancelRequest()
			}
`, ``},
		},
		Run: Run{For: 16 * time.Second},
	},
	{
		ID: "client-deaf", Store: Redis, Class: in(history.L2),
		Bug: "a waiter ignores a hand-over, both the push and the answer of the renewal",
		Edits: []Edit{
			{"await.go", `		case token := <-reply.Wake:
			a.l.pushed = true
			return token, a.lastProof(), nil`, `		case <-reply.Wake:`},
			{"await.go", `			case driver.Granted:
				a.l.pushed = false
				return result.Token, result.sent, nil
`, `			case driver.Granted:
				continue
`},
		},
		Run: Run{TTL: 2 * time.Second, For: 12 * time.Second, Slack: 500 * time.Millisecond},
	},
	{
		ID: "client-renews-no-leases", Store: Redis, Class: in(history.S2),
		Bug: "leases are not renewed, but trusted as if they were",
		Edits: []Edit{
			{"doubt.go", `r.leases, r.holds = append(r.leases, l), append(r.holds, l.renewal(r.sent))`,
				`l.extend(r.sent + s.trust(s.ttl))`},
		},
		Run: Run{For: 16 * time.Second},
	},
}
