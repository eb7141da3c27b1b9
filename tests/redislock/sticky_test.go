package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// recallLoser is a Conn that gets no call-backs while lost is true. It keeps the last one.
type recallLoser struct {
	redislock.Conn
	lost atomic.Bool
	mu   sync.Mutex
	last string
	say  func(string)
}

func (c *recallLoser) Subscribe(ctx context.Context, channel string, message func(string), again func()) (
	func(), error) {
	c.mu.Lock()
	c.say = message
	c.mu.Unlock()
	return c.Conn.Subscribe(ctx, channel, func(m string) {
		if strings.HasSuffix(m, " w") {
			c.mu.Lock()
			c.last = m
			c.mu.Unlock()
			if c.lost.Load() {
				return
			}
		}
		message(m)
	}, again)
}

// heard returns the last call-back.
func (c *recallLoser) heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func stickyClient(t *testing.T, conn redislock.Conn, ttl time.Duration) *holdfast.Client {
	t.Helper()
	b := redislock.New(conn, nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // its network may be gone
	})
	return c
}

// take takes and releases a mutex, and returns the token.
func take(t *testing.T, m *holdfast.Mutex) uint64 {
	t.Helper()
	l, err := m.Lock(within(t, soon))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	return l.Token()
}

// A sticky client costs the server no commands while nobody else wants the name.
func TestStickyCommands(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	c := stickyClient(t, dialURL(t, server.URL()), long)
	m := c.Mutex("x", holdfast.Sticky(long))
	last := take(t, m)
	// An idle connection sends PING after two seconds, and looks for its subscription with a script.
	idle := []string{"ping", "eval", "evalsha", "hdel", "pubsub|numsub", "info"}
	commands := func() (n int) {
		for name, stat := range server.Info("commandstats") {
			calls := 0
			if _, err := fmt.Sscanf(stat, "calls=%d", &calls); err != nil {
				t.Fatal(stat, err)
			}
			if !slices.Contains(idle, strings.TrimPrefix(name, "cmdstat_")) {
				n += calls
			}
		}
		if n == 0 {
			t.Fatal("no command is counted")
		}
		return n
	}
	before := commands()
	for range 60 { // the first block of tokens has 64
		token := take(t, m)
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
	}
	if n := commands() - before; n != 0 {
		t.Errorf("%d commands", n)
	}
	r, err := c.Inspect(within(t, soon), "x")
	if err != nil || r.Token < last {
		t.Errorf("%v; the store has given out tokens up to %d, and a call had %d", err, r.Token, last)
	}
}

// Call-backs are lost: the newcomer waits for d, and not for the lease, which is renewed.
func TestStickyCallBackIsLost(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	conn := &recallLoser{Conn: dialURL(t, server.URL())}
	conn.lost.Store(true)
	const d = 2 * time.Second
	c, other := stickyClient(t, conn, long), stickyClient(t, dialURL(t, server.URL()), long)
	began := time.Now() // before the release, from which d counts
	last := take(t, c.Mutex("x", holdfast.Sticky(d)))
	token := take(t, other.Mutex("x"))
	if waited := time.Since(began); waited < d || token <= last {
		t.Errorf("token %d after %d, %v after that; want %v", token, last, waited, d)
	}
	if conn.heard() == "" {
		t.Error("the store has called nothing back")
	}
}

// A message that names another grant, or none, calls nothing back. One that names the grant gives an
// idle grant back, and ends no lease.
func TestStickyForgedCallBack(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	conn := &recallLoser{Conn: dialURL(t, server.URL())}
	c := stickyClient(t, conn, long)
	other := stickyClient(t, dialURL(t, server.URL()), long)
	m := c.Mutex("x", holdfast.Sticky(long))
	grant := func() string {
		r, err := other.Inspect(within(t, soon), "x")
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Holders) != 1 {
			return ""
		}
		return r.Holders[0].ID
	}
	take(t, m)
	take(t, other.Mutex("x"))
	stale := conn.heard()
	take(t, m)
	id := grant()
	for _, text := range []string{stale, "x w", " w", "w", id, id + " ", id + "  w", id + " w w", id + " W", id + " w\n"} {
		conn.say(text)
	}
	l, err := m.Lock(within(t, soon))
	if err != nil {
		t.Fatal(err)
	}
	if grant() != id || id == "" {
		t.Errorf("the grant %q; want %q, which nobody has called back", grant(), id)
	}
	conn.say(id + " w")
	if err := l.Err(); err != nil || grant() != id {
		t.Errorf("a message has ended a lease: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if grant() != "" {
		t.Error("the grant was called back in use, and is kept")
	}
	take(t, m)
	conn.say(grant() + " w")
	until(t, "an idle grant goes back", func() bool { return grant() == "" })
}

// The subscription of the holder was cut off: call-backs may have been missed, so the grant goes back.
func TestStickySubscribesAgain(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			c := stickyClient(t, dial(t, server.Addr), long)
			other := stickyClient(t, dial(t, server.Addr), long)
			m := c.Mutex("x", holdfast.Sticky(long))
			last := take(t, m)
			server.Do("CLIENT KILL TYPE pubsub")
			until(t, "the idle grant has gone back", func() bool {
				r, err := other.Inspect(within(t, soon), "x")
				return err == nil && len(r.Holders) == 0
			})
			if token := take(t, m); token <= last {
				t.Errorf("token %d after %d", token, last)
			}
		})
	}
}

// The holder of an idle grant is cut off: others wait for its lease at most, and it takes nothing by
// itself once they may have it.
func TestStickyHolderIsCutOff(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	proxy := testenv.Proxy(t, server.Addr)
	c := stickyClient(t, dialRueidis(t, proxy.Addr), ttl)
	other := stickyClient(t, dialRueidis(t, server.Addr), ttl)
	m := c.Mutex("x", holdfast.Sticky(long))
	last := uint64(0)
	for range 1500 { // the blocks of tokens grow
		last = take(t, m)
	}
	proxy.Hole()
	cut := time.Now()
	var given atomic.Bool
	stopped := make(chan int)
	stop := make(chan struct{})
	go func() {
		n := 0
		defer func() { stopped <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			l, err := m.Lock(ctx)
			cancel()
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrUncertain) &&
					!errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("Lock: %v", err)
				}
				continue
			}
			n++
			before := given.Load() // if so, the trust in l has ended, whenever this goroutine goes on
			if err := l.Err(); before && err == nil {
				t.Error("a lease of the client that is cut off is trusted while another has the lock")
			}
			_ = l.Release()
			time.Sleep(5 * time.Millisecond) // the block shall last for longer than the lease
		}
	}()
	l, err := other.Mutex("x").Lock(within(t, soon))
	given.Store(err == nil)
	waited := time.Since(cut)
	time.Sleep(100 * time.Millisecond)
	close(stop)
	n := <-stopped
	if err != nil || l.Token() <= last {
		t.Fatalf("%v; token %d after %d", err, l.Token(), last)
	}
	if n == 0 {
		t.Error("the client that was cut off could take nothing, although its lease was trusted")
	}
	t.Logf("another client had the lock after %v; %d local takes before", waited, n)
	proxy.Heal()
	_ = l.Release()
}

// However many sticky clients take a name in turn, as fast as they can, its tokens are close to the server's
// clock.
func TestStickyInTurn(t *testing.T) {
	t.Parallel()
	const turn = 40 * time.Millisecond
	server := testenv.Redis(t)
	conn, clock := dialURL(t, server.URL()), rawClient(t, server.Addr)
	var mutexes []*holdfast.Mutex
	for range 4 {
		mutexes = append(mutexes, stickyClient(t, conn, long).Mutex("x", holdfast.Sticky(long)))
	}
	worst, leases := int64(0), 0
	for i := range 15 * len(mutexes) {
		m, last := mutexes[i%len(mutexes)], uint64(0)
		for end := time.Now().Add(turn); time.Now().Before(end); {
			for range 50 {
				l, err := m.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if last = l.GrantToken(); l.Release() != nil {
					t.Fatal("Release failed")
				}
				leases++
			}
		}
		now, err := clockOf(clock) // later than the last grant
		if err != nil {
			t.Fatal(err)
		}
		worst = max(worst, int64(last)-now)
	}
	t.Logf("%d leases; the tokens were %d µs ahead of the clock at most", leases, worst)
	if worst > ahead+2 {
		t.Errorf("the tokens were %d µs ahead of the clock; want at most %d", worst, ahead)
	}
}
