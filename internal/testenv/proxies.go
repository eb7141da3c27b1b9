package testenv

import (
	"context"
	"maps"
	"net"
	"slices"
	"testing"
)

// TCPProxies are proxies, one for each of several servers that tell clients each other's addresses.
// A client that dials with Dial goes through them.
type TCPProxies struct {
	by map[string]*TCPProxy
}

// Proxies starts a proxy for each address.
func Proxies(t testing.TB, addrs []string) *TCPProxies {
	t.Helper()
	p := &TCPProxies{by: map[string]*TCPProxy{}}
	for _, a := range addrs {
		p.by[a] = Proxy(t, a)
	}
	return p
}

// Dial connects to the proxy of the server at addr.
func (p *TCPProxies) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy, ok := p.by[addr]; ok {
		addr = proxy.Addr
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// To returns the proxy of one server.
func (p *TCPProxies) To(addr string) *TCPProxy { return p.by[addr] }

// Each calls do for all proxies, for example (*TCPProxy).Hole.
func (p *TCPProxies) Each(do func(*TCPProxy)) {
	for _, proxy := range p.by {
		do(proxy)
	}
}

// Hold is (*TCPProxy).Hold for all proxies.
func (p *TCPProxies) Hold() (deliver func()) {
	return HoldAll(slices.Collect(maps.Values(p.by))...)
}
