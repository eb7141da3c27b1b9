package zklock_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// New refuses each invalid field, and names it.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	good := []string{"127.0.0.1:2181"}
	for _, c := range []struct {
		what, text string
		cfg        zklock.Config
	}{
		{"no servers", "no servers", zklock.Config{}},
		{"an empty server", "server", zklock.Config{Servers: []string{""}}},
		{"a server without a host", "server", zklock.Config{Servers: []string{":2181"}}},
		{"a server without a port after the colon", "server", zklock.Config{Servers: []string{"a:"}}},
		{"a port that is no number", "server", zklock.Config{Servers: []string{"a:zk"}}},
		{"port zero", "server", zklock.Config{Servers: []string{"a:0"}}},
		{"a port too large", "server", zklock.Config{Servers: []string{"a:65536"}}},
		{"a server with a path", "server", zklock.Config{Servers: []string{"a:2181/chroot"}}},
		{"servers in one text", "server", zklock.Config{Servers: []string{"a:2181,b:2181"}}},
		{"one bad among good ones", "server", zklock.Config{Servers: append([]string{"a b:1"}, good...)}},
		{"a relative root", "root", zklock.Config{Servers: good, Root: "locks"}},
		{"a root that ends in a slash", "root", zklock.Config{Servers: good, Root: "/locks/"}},
		{"an empty level", "root", zklock.Config{Servers: good, Root: "/a//b"}},
		{"a dot", "root", zklock.Config{Servers: good, Root: "/a/."}},
		{"two dots", "root", zklock.Config{Servers: good, Root: "/../a"}},
		{"the servers' own", "root", zklock.Config{Servers: good, Root: "/zookeeper/locks"}},
		{"a control character", "root", zklock.Config{Servers: good, Root: "/a\x01"}},
		{"a negative session", "session", zklock.Config{Servers: good, Session: -1}},
		{"a session too long", "session", zklock.Config{Servers: good, Session: driver.MaxTTL + 1}},
		{"a session too short", "timeout", zklock.Config{Servers: good, Session: 1}},
		{"an unknown protocol", "protocol", zklock.Config{Servers: good, Protocol: 7}},
		{"a password without a user", "User", zklock.Config{Servers: good, Password: "x"}},
		{"private without a user", "User", zklock.Config{Servers: good, Access: zklock.Private}},
		{"a colon in the user", "user", zklock.Config{Servers: good, User: "a:b"}},
	} {
		if _, err := zklock.New(c.cfg); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want ErrInvalid about %q", c.what, err, c.text)
		}
	}
	for _, servers := range [][]string{{"a"}, {"::1"}, {"[::1]"}, {"[::1]:2181"}, {"a:1", "b"}} {
		if _, err := zklock.New(zklock.Config{Servers: servers, Root: "/a/b%2F", User: "u"}); err != nil {
			t.Errorf("%q: %v", servers, err)
		}
	}
}

// Servers that do not answer, or answer wrongly, are reported as unavailable, in time.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, "listen", err)
	defer func() { _ = silent.Close() }()
	for _, addr := range []string{silent.Addr().String(), testenv.FreeAddr(t)} {
		b := backend(t, on(addr))
		for what, call := range map[string]func(context.Context) error{
			"Open": func(ctx context.Context) error {
				_, err := b.Open(ctx, driver.SessionConfig{ID: "x", TTL: time.Second})
				return err
			},
			"Inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "x"); return err },
			"List":    func(ctx context.Context) error { _, err := b.List(ctx, "", "", 1); return err },
			"Break":   func(ctx context.Context) error { return b.Break(ctx, "x", 1) },
			"Remove":  func(ctx context.Context) error { return b.RemoveLatch(ctx, "x") },
			"New":     func(ctx context.Context) error { _, err := holdfast.New(ctx, b, nil); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			began := time.Now()
			err := call(ctx)
			cancel()
			wants(t, what, err, driver.ErrUnavailable)
			if errors.Is(err, driver.ErrUncertain) {
				t.Errorf("%s: %v: no request was sent", what, err)
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("%s returned after %v", what, d)
			}
		}
	}
}

// The backend stays open when the operators' session expires in an outage.
func TestOperatorsOutage(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t)
	proxy := testenv.Proxy(t, server.Addr)
	b := backend(t, on(proxy.Addr))
	inspect := func(ctx context.Context) error { _, err := b.Inspect(ctx, "x"); return err }
	must(t, "Inspect", answered(t, inspect))
	proxy.Hole()
	// Its session lasts two seconds.
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := errors.Join(b.SetLimit(ctx, "x", 3), b.Break(ctx, "x", 1))
		cancel()
		if err == nil || errors.Is(err, driver.ErrClosed) {
			t.Errorf("in an outage: %v", err)
		}
	}
	proxy.Heal()
	must(t, "Inspect", answered(t, inspect))
	must(t, "Close", b.Close())
	wants(t, "Inspect after Close", inspect(within(t)), driver.ErrClosed)
}

// Private nodes: another user is refused, and changes nothing.
func TestPrivate(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	private := func(user, password string) zklock.Config {
		access := zklock.Private
		if user == "" {
			access = zklock.Everybody
		}
		return zklock.Config{Servers: cfg.Servers, Root: cfg.Root + "/app/private", User: user, Password: password,
			Access: access}
	}
	a, same := newPeer(t, private("ann", "secret")), newPeer(t, private("ann", "secret"))
	h, s := a.get(a.req("x")), a.get(a.permits("s", 1, 2))
	_, err := a.SetCount(within(t), "l", 1)
	must(t, "SetCount", err)
	same.refused(once(same.req("x")))
	for _, c := range []struct{ what, user, password string }{{"nobody", "", ""}, {"a wrong password", "ann", "guess"},
		{"another user", "bob", "secret"}} {
		p := newPeer(t, private(c.user, c.password))
		for what, call := range map[string]func() error{
			"Lock":        func() error { _, err := p.Acquire(within(t), p.req("x")); return err },
			"TryLock":     func() error { _, err := p.Acquire(within(t), once(p.req("x"))); return err },
			"RLock":       func() error { _, err := p.Acquire(within(t), p.shared("x")); return err },
			"Acquire":     func() error { _, err := p.Acquire(within(t), p.permits("s", 1, 2)); return err },
			"a new name":  func() error { _, err := p.Acquire(within(t), p.req("y")); return err },
			"SetCount":    func() error { _, err := p.SetCount(within(t), "z", 1); return err },
			"CountDown":   func() error { _, err := p.CountDown(within(t), "l", "one"); return err },
			"Await":       func() error { _, err := p.Await(within(t), "l", "one"); return err },
			"Adopt":       func() error { return p.Adopt(within(t), h, p.req("x").ID, "") },
			"Inspect":     func() error { _, err := p.Inspect(within(t), "x"); return err },
			"List":        func() error { _, err := p.List(within(t), "", "", 10); return err },
			"Break":       func() error { return p.Break(within(t), "x", h.Token) },
			"RemoveLatch": func() error { return p.RemoveLatch(within(t), "l") },
			"SetLimit":    func() error { return p.SetLimit(within(t), "s", 5) },
			"the public Lock": func() error {
				_, err := client(t, private(c.user, c.password), longTTL).Mutex("x").Lock(within(t))
				return err
			},
		} {
			wants(t, c.what+": "+what, call(), driver.ErrRefused)
		}
	}
	all, err := same.List(within(t), "", "", 10)
	if err != nil || len(all) != 3 || all[0].Count != 1 || len(all[1].Holders) != 1 || len(all[2].Holders) != 1 ||
		all[1].Limit != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	a.release(h)
	a.release(s)
	must(t, "remove", same.RemoveLatch(within(t), "l"))
}

// A user who may create nodes but may not read the holder's node leaves no node behind.
func TestPrivateHolderInPublicFolder(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	z.make(cfg.Root+"/x/abc", zk.Persistent)
	a := newPeer(t, zklock.Config{Servers: cfg.Servers, Root: cfg.Root, User: "ann", Password: "secret",
		Access: zklock.Private})
	b := newPeer(t, cfg)
	h := a.get(a.req("x"))
	for range 3 {
		_, err := b.Acquire(within(t), b.req("x"))
		wants(t, "Acquire", err, driver.ErrRefused)
		if kids := z.children(cfg.Root + "/x"); len(kids) != 2 {
			t.Errorf("refused, and the folder has %q", kids)
		}
	}
	a.release(h)
	b.release(b.get(b.req("x")))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeperTLS(t, longSessions)
	cfg := on(server.Addr)
	cfg.TLS = server.TLS.Client(t)
	cfg.User, cfg.Password, cfg.Access = "ann", "secret", zklock.Private
	c := client(t, cfg, longTTL)
	l := lock(t, c, "x")
	wants(t, "Release", l.Release(), nil)

	without := on(server.Addr)
	without.TLS = server.TLS.Client(t)
	without.TLS.Certificates = nil
	other := on(server.Addr)
	other.TLS = testenv.NewCerts(t).Client(t)
	for what, cfg := range map[string]zklock.Config{"no certificate": without, "another authority": other,
		"no TLS": on(server.Addr)} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := backend(t, cfg).Open(ctx, driver.SessionConfig{ID: "x", TTL: time.Second})
		cancel()
		wants(t, what, err, driver.ErrUnavailable)
	}
}
