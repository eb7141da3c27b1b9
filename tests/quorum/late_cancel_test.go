package quorum_test

import (
	"context"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// asker is a client that asks one server for a mutex.
func (g *group) asker(t testing.TB, i int, name, id string) (free func()) {
	t.Helper()
	return g.asks(t, i, id, try(name, id+"-1"))
}

// asks is asker for any request. The client does not renew its lease, which is as long as a quarantine.
func (g *group) asks(t testing.TB, i int, id string, req *driver.Request) (free func()) {
	t.Helper()
	s, err := member(t, g, i).Join(within(t), driver.SessionConfig{ID: id, TTL: g.quarantine},
		redislock.Hooks{Pushed: func(string) {}, Claimed: func(string, int, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	reply, _, err := s.Ask(within(t), req, 0)
	if err != nil || reply.Token == 0 {
		t.Fatalf("server %d: %+v, %v", i+1, reply, err)
	}
	return func() {
		if err := s.Pass(within(t), driver.Hold{Name: req.Name, ID: req.ID, Token: reply.Token}, 0, 0); err != nil {
			t.Errorf("server %d: %v", i+1, err)
		}
	}
}

// firstOf returns the server that is the first in the order of name.
func (g *group) firstOf(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % uint32(len(g.servers)))
}

// stands renews holds until that succeeds times times: a server may have to be noticed as dead first.
func stands(t testing.TB, s driver.Session, times int, holds ...driver.Hold) {
	t.Helper()
	var changes []driver.Change
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && times > 0; time.Sleep(50 * time.Millisecond) {
		if changes, err = s.Renew(within(t), holds); err == nil && len(changes) == 0 {
			times--
		}
	}
	if times > 0 {
		t.Fatalf("Renew: %+v, %v; want a lease that goes on", changes, err)
	}
}

// afterScript is a Conn that calls do after the first run of a script with that text, before the caller hears
// of it. It does so once armed is true.
type afterScript struct {
	redislock.Conn
	text  string
	armed *atomic.Bool
	do    func()
	done  *atomic.Bool
}

func (c *afterScript) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	v, err := c.Conn.Run(ctx, s, keys, args)
	if c.armed.Load() && strings.Contains(s.Text, c.text) && c.done.CompareAndSwap(false, true) {
		c.do()
	}
	return v, err
}

// TestServerThatWasGivenUp: a request that does not wait gives up the one server that it has, and asks
// again. That server is slow to answer the cancellation. Later it counts like the others.
func TestServerThatWasGivenUp(t *testing.T) {
	t.Parallel()
	for range 10 {
		if givenUp(t) {
			return
		}
	}
	t.Fatal("no request has got two servers")
}

// givenUp reports false if the answers of a busy machine were too late for the request. The two servers that
// refuse the request are free before it hears of that.
func givenUp(t *testing.T) bool {
	g := start(t, 3, time.Minute)
	first := g.firstOf("x")
	var armed, withdrawn atomic.Bool
	locked := make(chan struct{})
	servers := at(g.addrs())
	after := func(i int, text string, do func()) {
		var done atomic.Bool
		servers[i].Dial = func(ctx context.Context) (redislock.Conn, error) {
			conn, err := at(g.addrs())[i].Dial(ctx)
			return &afterScript{Conn: conn, text: text, armed: &armed, do: do, done: &done}, err
		}
	}
	after(first, "-- Asks once for a name", g.asker(t, first, "x", "c"))
	after((first+1)%3, "-- Asks once for a name", g.asker(t, (first+1)%3, "x", "d"))
	after((first+2)%3, "-- Takes a request out of the queue", func() { withdrawn.Store(true); <-locked })
	b := quorum.New(servers, &quorum.Config{Quarantine: g.quarantine})
	t.Cleanup(func() { _ = b.Close() })
	a := open(t, b, "a", time.Minute)
	g.everywhere(t, "y", renewals(t, a, get(t, a, try("y", "a-y")))) // it is connected to all servers
	armed.Store(true)
	reply, err := a.Acquire(within(t), try("x", "a-1"))
	early := withdrawn.Load()
	close(locked)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	if reply.Token == 0 || !early {
		t.Logf("token %d; a server was given up: %v", reply.Token, early)
		return false
	}
	h := driver.Hold{Name: "x", ID: "a-1", Token: reply.Token}
	stands(t, a, 10, h)
	g.servers[first].Kill()
	stands(t, a, 5, h)
	return true
}

// TestReaderKeepsAServer: a server misses that a writer has become a reader and has left its queue.
// Later it grants the reader a share, which no late message ends.
func TestReaderKeepsAServer(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	g := start(t, 3, time.Minute) // the other client's lease is as long
	ways := g.proxies()
	first := g.firstOf("x")
	last := (first + 2) % 3
	free := g.asker(t, last, "x", "c")
	a := open(t, g.backend(ways.addrs()), "a", ttl)
	h, other := get(t, a, try("x", "a-1")), get(t, a, try("y", "a-2"))
	both := renewals(t, a, h, other)
	g.shows(t, last, "x", "a place", func(r driver.Record) bool { return r.Waiting == 1 }, both)
	g.everywhere(t, "y", both)
	ways[last].Refuse()
	if err := a.Downgrade(within(t), h); err != nil {
		t.Fatalf("Downgrade: %v", err)
	}
	free()
	ways[last].Heal()
	g.shows(t, last, "x", "a reader", func(r driver.Record) bool {
		return len(r.Holders) == 1 && r.Holders[0].Mode == driver.Shared
	}, both)
	g.servers[first].Kill()
	stands(t, a, 5, h)
}
