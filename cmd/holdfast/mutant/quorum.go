package mutant

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// quorum are bugs of the store on a majority of three Redis servers.
var quorum = []Mutant{
	{
		ID: "quorum-half-is-enough", Store: Quorum, Class: in(history.S1),
		Bug:   "a majority is counted as n/2",
		Edits: []Edit{{"redislock/quorum/request.go", `need: servers/2 + 1, votes`, `need: servers / 2, votes`}},
		Run:   Run{Faults: "kill"},
	},
	{
		ID: "quorum-any-token", Store: Quorum, Class: in(history.S4),
		Bug: "the token of a grant is that of one server, not that of a majority",
		Edits: []Edit{{"redislock/quorum/request.go", `		if token != 0 && n >= r.need {
			return token
		}
	}
	return 0`, `		if token != 0 && n >= r.need {
			return token/uint64(len(r.votes)) + uint64(i)
		}
	}
	return 0`}},
		Run: Run{Faults: "kill"},
	},
	{
		ID: "quorum-release-any-owner", Store: Quorum, Class: in(history.S1),
		Bug: "at the servers a release of an expired lease ends its successor's",
		Edits: []Edit{{"redislock/lua/common.lua", `if same(last, token) and field(tail, 1) == id then return true end`,
			`if last >= token then return true end`}},
		Run: Run{For: 14 * time.Second},
	},
	{
		ID: "quorum-release-at-one", Store: Quorum, Class: in(history.L1, history.L2),
		Bug: "a release goes to only one of the servers that have granted",
		Edits: []Edit{
			{"redislock/quorum/release.go", `			never := vote.sent == 0 || vote.state == kept`,
				`			never := vote.sent == 0 || vote.state == kept || asked > 0`},
			{"redislock/quorum/release.go", `	need := s.b.need()
	for open := asked;`, `	need := 1
	for open := asked;`},
		},
		Run: Run{TTL: 2 * time.Second, For: 12 * time.Second, Slack: 500 * time.Millisecond, Faults: "kill"},
	},
}
