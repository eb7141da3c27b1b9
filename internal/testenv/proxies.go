package testenv

import (
	"context"
	"maps"
	"net"
	"slices"
	"testing"
)

// TCPProxies are a proxy for each of several servers that name each other to their clients. A client
// goes through them if it dials with Dial.
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

// To is the proxy of one server.
func (p *TCPProxies) To(addr string) *TCPProxy { return p.by[addr] }

// Each does the same to all: (*TCPProxy).Hole, for example.
func (p *TCPProxies) Each(do func(*TCPProxy)) {
	for _, proxy := range p.by {
		do(proxy)
	}
}

// Hold is (*TCPProxy).Hold for all.
func (p *TCPProxies) Hold() (deliver func()) {
	return HoldAll(slices.Collect(maps.Values(p.by))...)
}
