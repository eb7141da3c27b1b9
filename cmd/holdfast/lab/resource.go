package lab

import (
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// job is the guarded resource of a row, in one of the three most frequent uses of such locks. A
// client reads how much is used, decides, and writes one more.
type job struct {
	lock   string    // the name of the lock
	has    [2]string // what a client reads while nothing is used yet, and after the first
	does   string    // what it does then
	damage string    // the damage if two clients did it
	limit  int
}

var (
	stock = &job{"stock/7", [2]string{"1 piece is left", "no piece is left"}, "sells it, and writes 0",
		"two customers have bought the one piece", 1}
	points = &job{"points/ann", [2]string{"100 points", "0 points"}, "spends all of them, and writes 0",
		"100 points have been spent twice", 1}
	gift = &job{"gift/X7Q", [2]string{"not redeemed yet", "redeemed"}, "redeems it, and writes so",
		"the gift was redeemed twice", 1}
)

// resource is a database row that the lock must guard. If its clients have tokens, it remembers the
// highest one from the first contact on, and refuses lower ones.
type resource struct {
	mu      sync.Mutex
	used    int
	writes  int
	highest uint64
	refused int
}

// reads reads the row. token 0: the algorithm has none. It returns how much is used, and whether
// the read was allowed.
func (p *scenario) reads(who string, token uint64) (used int, ok bool) {
	r := p.at
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale(p, who, token, history.Read) {
		return 0, false
	}
	text := fmt.Sprintf("reads: %s", p.job.has[min(r.used, 1)])
	e := history.Event{Kind: history.Read, Client: who, Name: p.job.lock, Token: token, Value: int64(r.used),
		Result: history.Accepted}
	if token > 0 {
		text += fmt.Sprintf(" (with token %d)", token)
	}
	p.rec.add(Event{Lane: who, Kind: Works, Text: text}, e)
	return r.used, true
}

// writes writes the row after a read that returned used.
func (p *scenario) writes(who string, used int, token uint64) (ok bool) {
	r := p.at
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale(p, who, token, history.Write) {
		return false
	}
	e := history.Event{Kind: history.Write, Client: who, Name: p.job.lock, Token: token, Value: int64(used + 1),
		Result: history.Accepted}
	r.used = used + 1
	r.writes++
	p.rec.add(Event{Lane: who, Kind: Works, Text: p.job.does}, e)
	if r.writes > p.job.limit {
		p.show("%s", p.job.damage)
	}
	return true
}

// stale refuses an old token. Called with r.mu held.
func (r *resource) stale(p *scenario, who string, token uint64, kind history.Kind) bool {
	if token == 0 || token >= r.highest {
		r.highest = max(r.highest, token)
		return false
	}
	r.refused++
	what := "write"
	if kind == history.Read {
		what = "read"
	}
	p.rec.add(Event{Lane: who, Kind: Refused, Text: fmt.Sprintf(
		"wants to %s with token %d: refused, because the resource has already seen token %d", what, token, r.highest)},
		history.Event{Kind: kind, Client: who, Name: p.job.lock, Token: token, Value: int64(r.used),
			Result: history.Rejected})
	return true
}

// works reads and writes as a client of an algorithm without tokens.
func (c *client) works() {
	if used, _ := c.reads(c.name, 0); used < c.job.limit {
		c.writes(c.name, used, 0)
	} else {
		c.concludes("nothing is left to do")
	}
}
