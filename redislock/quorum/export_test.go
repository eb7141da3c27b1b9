package quorum

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// Describe says what a session knows of its requests, for tests that fail.
func Describe(ds driver.Session) string {
	s := ds.(*session)
	s.mu.Lock()
	var all []*request
	for _, r := range s.requests {
		all = append(all, r)
	}
	s.mu.Unlock()
	var out strings.Builder
	for _, r := range all {
		r.mu.Lock()
		fmt.Fprintf(&out, "%s %s: token %d, since %d, asking %v, raising %v, over %v, claims %d, timer %v, rank %d, order %v\n", r.driver.ID, r.driver.Name, r.token, r.since, r.asking, r.raising, r.over, r.claims, r.timer != nil, r.rank(), r.order)
		for i := range r.seats {
			seat := &r.seats[i]
			fmt.Fprintf(&out, "   %d: %s token %d place %d sent %d heard %d failed %d slow %v %v\n", i,
				[]string{"nothing", "waiting", "granted", "leaving", "kept"}[seat.state], seat.token, seat.place, seat.sent, seat.heard, seat.failed, s.posts[i].slow.Load() != 0, seat.err)
		}
		r.mu.Unlock()
	}
	return out.String()
}

// agree has the clocks of servers that are not real count.
func (b *Backend) agree() {
	b.clocks = newClocks(b)
	for i := range b.clocks.views {
		b.clocks.views[i].trust = sound
	}
}
