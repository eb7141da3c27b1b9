package zklock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// limit is how long a test waits for an event that must happen; a slow machine needs much of it.
const limit = 2 * time.Minute

// longTTL is for tests in which no session may expire, on any machine. Servers started with
// longSessions grant it.
const longTTL = time.Minute

// within returns a context of the test that ends before the test times out.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// wants fails the test if err is not target (nil: no error).
func wants(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v; want %v", what, err, target)
	}
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// beside is a test for its other goroutines: Fatalf ends the goroutine alone.
type beside struct{ testing.TB }

func (b beside) Fatalf(format string, args ...any) {
	b.Helper()
	b.Errorf(format, args...)
	runtime.Goexit()
}

// one is a server for all tests that leave it as it was.
var one = testenv.Shared(func(t testing.TB) *testenv.ZooKeeperServer { return testenv.ZooKeeper(t, longSessions) })

// zooKeepers is for examples.
func zooKeepers() []string { return []string{testenv.ForExample(one).Addr} }

// common returns the shared server, and a Config with a root for this test alone.
func common(t testing.TB) (*testenv.ZooKeeperServer, zklock.Config) {
	t.Helper()
	server := one(t)
	return server, zklock.Config{Servers: []string{server.Addr}, Root: "/" + strings.ToLower(rand.Text())}
}

// through returns cfg with the proxy as its server.
func through(cfg zklock.Config, proxy *testenv.TCPProxy) zklock.Config {
	cfg.Servers = []string{proxy.Addr}
	return cfg
}

func on(addrs ...string) zklock.Config { return zklock.Config{Servers: addrs} }

func backend(t testing.TB, cfg zklock.Config) *zklock.Backend {
	t.Helper()
	b, err := zklock.New(cfg)
	must(t, "New", err)
	zklock.Patient(b)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// peer is one session of the driver.
type peer struct {
	driver.Session
	*zklock.Backend
	t   testing.TB
	id  string
	ids atomic.Int64
}

func (p *peer) Close(ctx context.Context) error { return p.Session.Close(ctx) }

func newPeer(t testing.TB, cfg zklock.Config) *peer {
	t.Helper()
	return newPeerFor(t, cfg, longTTL)
}

func newPeerFor(t testing.TB, cfg zklock.Config, ttl time.Duration) *peer {
	t.Helper()
	p := &peer{Backend: backend(t, cfg), t: t, id: strings.ToLower(rand.Text())}
	var s driver.Session
	must(t, "Open", answered(t, func(ctx context.Context) (err error) {
		s, err = p.Open(ctx, driver.SessionConfig{ID: p.id, TTL: ttl})
		return err
	}))
	p.Session = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // the test may have made that impossible
	})
	return p
}

// req returns a request for an exclusive lock that waits.
func (p *peer) req(name string) *driver.Request {
	id := p.id + "-" + strconv.FormatInt(p.ids.Add(1), 36)
	return &driver.Request{ID: id, Name: name, Mode: driver.Exclusive, N: 1, Wait: true,
		Info: driver.Info{Note: "of " + name}.String()}
}

func (p *peer) shared(name string) *driver.Request {
	r := p.req(name)
	r.Mode = driver.Shared
	return r
}

func (p *peer) permits(name string, n, limit int) *driver.Request {
	r := p.req(name)
	r.Mode, r.N, r.Limit = driver.Permits, n, limit
	return r
}

func once(r *driver.Request) *driver.Request { r.Wait = false; return r }

// acquire is Acquire, repeated until the store answers: a server may be slow.
func (p *peer) acquire(r *driver.Request) (reply driver.Reply) {
	p.t.Helper()
	must(p.t, "Acquire "+r.Name, answered(p.t, func(ctx context.Context) (err error) {
		reply, err = p.Acquire(ctx, r)
		return err
	}))
	return reply
}

// get is an Acquire that must be granted.
func (p *peer) get(r *driver.Request) driver.Hold {
	p.t.Helper()
	reply := p.acquire(r)
	if reply.Token == 0 {
		p.t.Fatalf("Acquire %q was not granted; in the way: %+v", r.Name, reply.Holder)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

// refused is an Acquire that must not be granted.
func (p *peer) refused(r *driver.Request) driver.Reply {
	p.t.Helper()
	reply := p.acquire(r)
	if reply.Token != 0 {
		p.t.Fatalf("Acquire %q was granted token %d next to another grant", r.Name, reply.Token)
	}
	return reply
}

// release is Release, repeated until the store answers. If an earlier attempt was done but not
// answered, the grant has ended already.
func (p *peer) release(h driver.Hold) {
	p.t.Helper()
	tries := 0
	err := answered(p.t, func(ctx context.Context) error { tries++; return p.Release(ctx, h, 0) })
	if tries > 1 && (errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrTaken)) {
		err = nil
	}
	must(p.t, "Release "+h.Name, err)
}

// renew is a Renew of one hold that must be answered; the zero Change means no change.
func (p *peer) renew(h driver.Hold) driver.Change {
	p.t.Helper()
	var changes []driver.Change
	must(p.t, "Renew "+h.Name, answered(p.t, func(ctx context.Context) (err error) {
		changes, err = p.Renew(ctx, []driver.Hold{h})
		return err
	}))
	if len(changes) == 0 {
		return driver.Change{}
	}
	return changes[0]
}

// woken waits for the grant of a waiting request. It asks again when a push says so, and renews the
// place.
func (p *peer) woken(r *driver.Request, reply driver.Reply) driver.Hold {
	p.t.Helper()
	end := time.After(limit)
	beat := time.NewTicker(p.TTL() / 3)
	defer beat.Stop()
	for reply.Token == 0 {
		select {
		case token := <-reply.Wake:
			if reply.Token = token; token == 0 {
				reply = p.acquire(r)
			}
		case <-beat.C:
			switch ch := p.renew(driver.Hold{Name: r.Name, ID: r.ID}); ch.State {
			case driver.Granted:
				reply.Token = ch.Token
			case driver.Gone:
				reply = p.acquire(r)
			}
		case <-end:
			p.t.Fatalf("%q: not granted within %v", r.Name, limit)
		}
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

func (p *peer) inspect(name string) (r driver.Record) {
	p.t.Helper()
	must(p.t, "Inspect "+name, answered(p.t, func(ctx context.Context) (err error) {
		r, err = p.Inspect(ctx, name)
		return err
	}))
	return r
}

// fails calls f with a short context and expects an error that leaves the outcome open.
func fails(t testing.TB, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if err := f(ctx); err == nil {
		t.Fatalf("%s: no error, although no server can have answered", what)
	}
}

// answered repeats f until the store answers, as package holdfast does.
func answered(t testing.TB, f func(ctx context.Context) error) error {
	t.Helper()
	for ctx := within(t); ; time.Sleep(5 * time.Millisecond) {
		err := f(ctx)
		if !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

// setLimit is SetLimit, repeated until the store answers.
func setLimit(t testing.TB, b interface {
	SetLimit(ctx context.Context, name string, limit int) error
}, name string, limit int) {
	t.Helper()
	must(t, "SetLimit "+name, answered(t, func(ctx context.Context) error { return b.SetLimit(ctx, name, limit) }))
}

// client returns a client of package holdfast.
func client(t testing.TB, cfg zklock.Config, ttl time.Duration) *holdfast.Client {
	t.Helper()
	b := backend(t, cfg)
	var c *holdfast.Client
	must(t, "New", answered(t, func(ctx context.Context) (err error) {
		c, err = holdfast.New(ctx, b, &holdfast.Config{TTL: ttl, Program: "test"})
		return err
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func lock(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Lease {
	t.Helper()
	var l *holdfast.Lease
	must(t, "Lock "+name, answered(t, func(ctx context.Context) (err error) {
		l, err = c.Mutex(name, opts...).Lock(ctx)
		return err
	}))
	return l
}

// tree is a ZooKeeper session that reads nodes, and creates nodes as other programs do.
type tree struct {
	*zk.Session
	t testing.TB
}

func newTree(t testing.TB, addr string) tree {
	t.Helper()
	s, err := zk.Dial(within(t), zk.Config{Servers: []string{addr}, Timeout: longTTL})
	must(t, "Dial", err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return tree{s, t}
}

// make creates a node and the missing nodes above it. It returns the node's path.
func (z tree) make(path string, mode zk.Mode) string {
	z.t.Helper()
	for {
		made, _, err := z.Create(within(z.t), path, []byte("foreign"), mode, zk.WorldACL(zk.PermAll))
		if errors.Is(err, zk.ErrNoNode) {
			z.make(path[:strings.LastIndexByte(path, '/')], zk.Container)
			continue
		}
		if err != nil && !(mode == zk.Container && errors.Is(err, zk.ErrNodeExists)) {
			z.t.Fatal(err)
		}
		return made
	}
}

// children returns the names below path, as the leader knows them; none if path does not exist.
func (z tree) children(path string) []string {
	z.t.Helper()
	all, err := z.SyncAndList(within(z.t), path)
	must(z.t, "list", err)
	if !errors.Is(all[0].Err, zk.ErrNoNode) {
		must(z.t, "list", all[0].Err)
	}
	return all[0].Names
}

// nodes returns the paths of all nodes below path.
func (z tree) nodes(path string) (all []string) {
	z.t.Helper()
	for _, c := range z.children(path) {
		child := strings.TrimSuffix(path, "/") + "/" + c
		all = append(append(all, child), z.nodes(child)...)
	}
	return all
}

func (z tree) delete(path string) {
	z.t.Helper()
	must(z.t, "delete", z.Delete(within(z.t), path, zk.AnyVersion))
}

// empty waits until a folder has no nodes.
func (z tree) empty(path string) {
	z.t.Helper()
	var left []string
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if left = z.nodes(path); len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			z.t.Fatalf("%d nodes left below %s: %q", len(left), path, left[:min(len(left), 5)])
		}
	}
}

// watches returns how many watches the server keeps for all sessions.
func watches(t testing.TB, z *testenv.ZooKeeperServer) (n int) {
	t.Helper()
	text, err := z.Word("wchs")
	must(t, "wchs", err)
	_, total, ok := strings.Cut(text, "Total watches:")
	if n, err = strconv.Atoi(strings.TrimSpace(total)); !ok || err != nil {
		t.Fatalf("wchs: %q", text)
	}
	return n
}
