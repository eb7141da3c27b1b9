package quorum

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/hook"
)

func init() { hook.QuorumDescribe = func(s any) string { return s.(*session).describe() } }

// describe shows what the session knows of its requests, for tests that fail.
func (s *session) describe() string {
	s.mu.Lock()
	var all []*request
	for _, r := range s.requests {
		all = append(all, r)
	}
	s.mu.Unlock()
	var out strings.Builder
	for _, r := range all {
		r.mu.Lock()
		fmt.Fprintf(&out,
			"%s %s: token %d, since %d, asking %v, raising %v, over %v, claims %d, timer %v, rank %d, order %v\n", r.driver.ID,
			r.driver.Name, r.token, r.since.stamp, r.asking, r.raising, r.over, r.claims, r.timer != nil, r.rank(), r.order)
		for i := range r.votes {
			vote := &r.votes[i]
			fmt.Fprintf(&out, "   %d: %s token %d place %d sent %d answered %d failed %d slow %v %v\n", i,
				[]string{"nothing", "waiting", "granted", "yielding", "kept"}[vote.state], vote.token, vote.place, vote.sent,
				vote.answered, vote.failed, s.endpoints[i].slow.Load() != 0, vote.err)
		}
		r.mu.Unlock()
	}
	return out.String()
}
