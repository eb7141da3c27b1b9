// Package asking has what the Askers of all Redis clients share.
package asking

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Each lets ask put n questions to each of servers, all at the same time. nodes are the servers that the
// client leads to, by their names; if servers is nil, all of them are asked.
func Each[N any](nodes map[string]N, servers []string, n int, ask func(N) []redislock.Result) []redislock.Answers {
	var all []redislock.Answers
	var mu sync.Mutex
	var asked sync.WaitGroup
	for server, node := range nodes {
		if servers == nil || slices.Contains(servers, server) {
			asked.Go(func() {
				a := redislock.Answers{Server: server}
				if n > 0 {
					a.Results = ask(node)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, a)
			})
		}
	}
	asked.Wait()
	if len(all) == 0 {
		return Nobody(n, fmt.Errorf("%w: the client leads to other servers", driver.ErrUnavailable))
	}
	slices.SortFunc(all, func(a, b redislock.Answers) int { return cmp.Compare(a.Server, b.Server) })
	return all
}

// Nobody is the answer to n questions if no server was asked.
func Nobody(n int, err error) []redislock.Answers {
	return []redislock.Answers{{Results: Failed(n, err)}}
}

// Failed returns n results with the same error.
func Failed(n int, err error) []redislock.Result {
	return slices.Repeat([]redislock.Result{{Err: err}}, n)
}
