package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// group is a test's own servers, declared a quorum.
type group struct {
	t          testing.TB
	servers    []*testenv.RedisServer
	quarantine time.Duration
}

// start starts n servers that vote at once.
func start(t testing.TB, n int, quarantine time.Duration, args ...string) *group {
	t.Helper()
	g := &group{t: t, quarantine: quarantine}
	for range n {
		g.servers = append(g.servers, testenv.Redis(t, args...))
	}
	b := g.backend(g.addrs())
	if err := b.Declare(within(t)); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	return g
}

func (g *group) addrs() (all []string) {
	for _, s := range g.servers {
		all = append(all, s.Addr)
	}
	return all
}

// each sends a command to all servers.
func (g *group) each(line string) {
	g.t.Helper()
	for _, s := range g.servers {
		if reply := s.Do(line); reply != "+OK" {
			g.t.Fatalf("%s: %s", line, reply)
		}
	}
}

// backend is closed when the test ends.
func (g *group) backend(addrs []string) *quorum.Backend {
	g.t.Helper()
	b := quorum.New(at(addrs), &quorum.Config{Quarantine: g.quarantine})
	g.t.Cleanup(func() { _ = b.Close() })
	return b
}

func at(addrs []string) (all []quorum.Server) {
	for i, a := range addrs {
		all = append(all, quorum.Server{
			Name: fmt.Sprint("server ", i+1),
			Dial: func(ctx context.Context) (redislock.Conn, error) {
				return rueidisconn.DialContext(ctx, "redis://"+a, nil)
			},
		})
	}
	return all
}

// set identifies these servers.
func (g *group) set() (all string) {
	for _, s := range at(g.addrs()) {
		all += s.Name + "\n"
	}
	return all
}

// proxies are connections to the servers that can be disturbed.
type proxies []*testenv.TCPProxy

func (g *group) proxies() (all proxies) {
	for _, s := range g.servers {
		all = append(all, testenv.Proxy(g.t, s.Addr))
	}
	return all
}

func (p proxies) addrs() (all []string) {
	for _, x := range p {
		all = append(all, x.Addr)
	}
	return all
}

func (p proxies) each(f func(*testenv.TCPProxy)) {
	var all sync.WaitGroup
	for _, x := range p {
		all.Go(func() { f(x) })
	}
	all.Wait()
}

// member opens one server as the quorum does.
func member(t testing.TB, g *group, i int) *redislock.Member {
	t.Helper()
	return memberAt(t, g, g.servers[i].Addr)
}

func memberAt(t testing.TB, g *group, addr string) *redislock.Member {
	t.Helper()
	conn, err := rueidisconn.Dial("redis://" + addr)
	// Dial gives up after three seconds, which a busy machine may need.
	for tries := 0; errors.Is(err, driver.ErrUnavailable) && tries < 5; tries++ {
		conn, err = rueidisconn.Dial("redis://" + addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m, err := redislock.NewMember(conn, quorum.DefaultPrefix, g.quarantine, g.set(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// within bounds calls that must not hang.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// connect opens a client, which is closed with the test.
func connect(t testing.TB, b driver.Backend, cfg *holdfast.Config) *holdfast.Client {
	t.Helper()
	c := repeat(t, func(ctx context.Context) (*holdfast.Client, error) { return holdfast.New(ctx, b, cfg) })
	t.Cleanup(func() { _ = c.Close(within(t)) })
	return c
}

// repeat opens something, again if a majority answered too late, as it may on a busy machine.
func repeat[T any](t testing.TB, open func(context.Context) (T, error)) T {
	t.Helper()
	for ctx := within(t); ; time.Sleep(5 * time.Millisecond) {
		x, err := open(ctx)
		if err == nil {
			return x
		}
		if !passing(err) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// do is Do of a lock. A busy machine may leave no time for the answer to the release, which is no failure.
func do(t testing.TB, call func(context.Context, func(context.Context) error) error,
	f func(context.Context) error) (ok bool) {
	t.Helper()
	var used time.Time
	err := call(within(t), func(ctx context.Context) error {
		err := f(ctx)
		used = time.Now()
		return err
	})
	if err != nil && (used.IsZero() || !late(err, used)) {
		t.Error(err)
		return false
	}
	return true
}

// late reports whether err means that the answers to an exchange came too late, as they may on a busy machine. An
// error that comes sooner has another cause.
func late(err error, asked time.Time) bool { return passing(err) && time.Since(asked) > time.Second }

// passing reports whether err may be due to a connection that has to be made again.
func passing(err error) bool {
	return errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable)
}
