package testenv

import (
	"fmt"
	"net"
	"slices"
	"testing"
)

// redisLinks are the connections between servers and sentinels of Redis, so that some of them can
// be cut off from the others. Clients use the same addresses, but are not cut off: their IP address
// is not a member's.
type redisLinks struct {
	ways [][]*TCPProxy // to each member: to its port, and in a Cluster to its bus
}

// newLinks returns links to members, each of which listens at the given addresses.
func newLinks(t testing.TB, members [][]string) *redisLinks {
	t.Helper()
	l := &redisLinks{}
	for _, addrs := range members {
		var ways []*TCPProxy
		for _, a := range addrs {
			ways = append(ways, Proxy(t, a))
		}
		l.ways = append(l.ways, ways)
	}
	return l
}

// addr returns the address of member i for the others: of its port, or, if bus is 1, of its bus.
func (l *redisLinks) addr(i, bus int) (host, port string) {
	host, port, _ = net.SplitHostPort(l.ways[i][bus].Addr)
	return host, port
}

// source returns the server option by which its connections are known as those of member i.
func (*redisLinks) source(i int) []string { return []string{"--bind-source-addr", sourceOf(i)} }

func sourceOf(i int) string { return fmt.Sprintf("127.0.1.%d", i+1) }

// cut cuts these members off from all others, silently.
func (l *redisLinks) cut(members ...int) {
	for i, ways := range l.ways {
		var others []string
		for j := range l.ways {
			if slices.Contains(members, i) != slices.Contains(members, j) {
				others = append(others, sourceOf(j))
			}
		}
		for _, w := range ways {
			w.HoleFor(others...)
		}
	}
}

// join ends cut.
func (l *redisLinks) join() {
	for _, ways := range l.ways {
		for _, w := range ways {
			w.Heal()
		}
	}
}

// find returns the server with an address that the others use, which is its own if there are no
// links; -1 if there is none.
func (l *redisLinks) find(servers []*RedisServer, addr string) int {
	if l == nil {
		return slices.Index(addrs(servers), addr)
	}
	return slices.IndexFunc(l.ways, func(ways []*TCPProxy) bool { return ways[0].Addr == addr })
}
