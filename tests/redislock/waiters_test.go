package redislock_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestKilledWaiter: the connection of the first waiter is gone, so the second one gets the lock at
// once.
func TestKilledWaiter(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	proxy := testenv.Proxy(t, server.Addr)
	a, _ := session(t, server.URL(), long)
	dead := openSession(t, redislock.New(dialRueidis(t, proxy.Addr), nil), long)
	c, b := session(t, server.URL(), long)
	h := granted(t, a, exclusive("x"))
	acquire(t, dead, exclusive("x"))
	reply := acquire(t, c, exclusive("x"))
	if reply.Ahead != 1 {
		t.Fatalf("%d ahead; want 1", reply.Ahead)
	}
	proxy.Refuse()
	until(t, "one subscriber is gone", func() bool { return subscribers(t, server) == 2 })
	if err := a.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token <= h.Token {
		t.Fatalf("token %d after %d", token, h.Token)
	}
	if rec, err := b.Inspect(within(t, soon), "x"); err != nil || rec.Waiting != 0 {
		t.Errorf("Inspect: %+v, %v", rec, err)
	}
}

// TestBlackHoledWaiter: the first waiter is cut off without the server's knowledge. It delays the
// queue for as long as its place would have lasted, and no longer.
func TestBlackHoledWaiter(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	server := testenv.Redis(t)
	proxy := testenv.Proxy(t, server.Addr)
	a, _ := session(t, server.URL(), long)
	lost := openSession(t, redislock.New(dialRueidis(t, proxy.Addr), nil), ttl)
	c, _ := session(t, server.URL(), long)
	h := granted(t, a, exclusive("x"))
	start := time.Now()
	acquire(t, lost, exclusive("x"))
	r := exclusive("x")
	acquire(t, c, r)
	proxy.Hole()
	if err := a.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "the second waiter has it", func() bool {
		changes, err := c.Renew(within(t, soon), []driver.Hold{{Name: "x", ID: r.ID}})
		return err == nil && len(changes) == 1 && changes[0].State == driver.Granted
	})
	if d := time.Since(start); d < ttl {
		t.Errorf("it took %v; the place lasts %v", d, ttl)
	}
	proxy.Heal()
}

// TestSubscriptionCut: a hand-over that was published while the subscription was down is noticed
// when the subscription is back.
func TestSubscriptionCut(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			proxy := testenv.Proxy(t, server.Addr)
			s := openSession(t, redislock.New(dial(t, proxy.Addr), nil), long)
			a, _ := session(t, server.URL(), long)
			granted(t, a, exclusive("x"))
			r := exclusive("x")
			reply := acquire(t, s, r)
			proxy.Refuse()
			until(t, "the subscription is gone", func() bool { return subscribers(t, server) == 1 })
			proxy.Heal()
			if v := woken(t, reply); v != 0 {
				t.Fatalf("woken with %d; want 0: ask again", v)
			}
			var again driver.Reply
			until(t, "it is answered", func() bool { // the first request may meet the broken connection
				var err error
				again, err = s.Acquire(within(t, soon), r)
				return err == nil
			})
			if again.Ahead != 0 || again.Token != 0 {
				t.Errorf("%+v", again)
			}
		})
	}
}

func TestLongQueue(t *testing.T) {
	t.Parallel()
	n := testenv.Rounds(600, 5000)
	server := testenv.Redis(t)
	a, b := session(t, server.URL(), long)
	c, _ := session(t, server.URL(), long)
	h := granted(t, a, exclusive("x"))
	queue := make([]*driver.Request, n)
	wakes := make([]driver.Reply, n)
	places := make([]driver.Hold, n)
	for i := range queue {
		queue[i] = exclusive("x")
		wakes[i] = acquire(t, c, queue[i])
		places[i] = driver.Hold{Name: "x", ID: queue[i].ID}
		if wakes[i].Ahead != i {
			t.Fatalf("%d ahead; want %d", wakes[i].Ahead, i)
		}
	}
	start := time.Now()
	changes, err := c.Renew(within(t, soon), places)
	if err != nil || len(changes) != n {
		t.Fatalf("Renew: %d changes, %v", len(changes), err)
	}
	t.Logf("renewed %d places in %v", n, time.Since(start))
	for _, ch := range changes {
		if ch.State != driver.Waiting || ch.Ahead != ch.Index {
			t.Fatalf("%+v", ch)
		}
	}
	if rec, err := b.Inspect(within(t, soon), "x"); err != nil || rec.Waiting != n ||
		len(rec.Waiters) != driver.MaxWaiters {
		t.Fatalf("Inspect: %d of %d, %v", len(rec.Waiters), rec.Waiting, err)
	}
	start = time.Now()
	if err := a.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	last := h.Token
	for i := range queue {
		token := woken(t, wakes[i])
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
		if err := c.Release(within(t, soon), driver.Hold{Name: "x", ID: queue[i].ID, Token: token}, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%v for each of %d hand-overs", time.Since(start)/time.Duration(n), n)
}

func TestManyPermits(t *testing.T) {
	t.Parallel()
	n := testenv.Rounds(1000, 10_000)
	server := testenv.Redis(t)
	s, b := session(t, server.URL(), long)
	holds := make([]driver.Hold, n)
	request := func() *driver.Request {
		return &driver.Request{ID: newID(), Name: "x", Mode: driver.Permits, N: 1, Limit: n}
	}
	start := time.Now()
	for i := range holds {
		holds[i] = granted(t, s, request())
	}
	t.Logf("%v for each of %d permits", time.Since(start)/time.Duration(n), n)
	if reply := acquire(t, s, request()); reply.Token != 0 || reply.Holder == nil || reply.Retry <= 0 {
		t.Fatalf("one too many: %+v", reply)
	}
	start = time.Now()
	if changes, err := s.Renew(within(t, soon), holds); err != nil || len(changes) != 0 {
		t.Fatalf("Renew: %d, %v", len(changes), err)
	}
	t.Logf("renewed %d permits in %v", n, time.Since(start))
	if rec, err := b.Inspect(within(t, soon), "x"); err != nil || len(rec.Holders) != n || rec.Limit != n {
		t.Fatalf("Inspect: %d of %d, %v", len(rec.Holders), rec.Limit, err)
	}
	if err := s.Close(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	if rec, err := b.Inspect(within(t, soon), "x"); err != nil || rec.Kind != driver.Unused {
		t.Fatalf("after Close: %+v, %v", rec, err)
	}
}

// TestCostOfLeases: thousands of leases need no goroutines, and little memory.
func TestCostOfLeases(t *testing.T) {
	n := testenv.Rounds(3000, 10_000)
	server := testenv.Redis(t)
	before := runtime.NumGoroutine()
	s, _ := session(t, server.URL(), long)
	holds := make([]driver.Hold, n)
	for i := range holds {
		holds[i] = driver.Hold{Name: fmt.Sprint("n", i), ID: newID()}
	}
	ctx := within(t, long)
	heap := heapInUse()
	for i := range holds {
		reply, err := s.Acquire(ctx, &driver.Request{ID: holds[i].ID, Name: holds[i].Name, Mode: driver.Exclusive, N: 1})
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		holds[i].Token = reply.Token
	}
	if each := (heapInUse() - heap) / int64(n); each > 400 {
		t.Errorf("%d bytes of heap for each lease", each)
	} else {
		t.Logf("%d bytes of heap for each lease", each)
	}
	start := time.Now()
	if changes, err := s.Renew(within(t, soon), holds); err != nil || len(changes) != 0 {
		t.Fatalf("Renew: %d, %v", len(changes), err)
	}
	t.Logf("renewed %d leases in %v", n, time.Since(start))
	// rueidis keeps a few for each connection, whatever is held.
	if more := runtime.NumGoroutine() - before; more > 10 {
		t.Errorf("%d goroutines more than before", more)
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // objects in pools go with the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, graceful := range []bool{true, false} {
		server := testenv.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
		s, _ := session(t, server.URL(), long)
		h := granted(t, s, exclusive("x"))
		server.Restart(graceful)
		until(t, "the grant stands", func() bool {
			changes, err := s.Renew(within(t, soon), []driver.Hold{h})
			return err == nil && len(changes) == 0
		})
		if err := s.Release(within(t, soon), h, 0); err != nil {
			t.Fatal(err)
		}
		server.Do("FLUSHALL")
		if h2 := granted(t, s, exclusive("x")); h2.Token <= h.Token {
			t.Errorf("token %d after %d", h2.Token, h.Token)
		}
	}
}

// TestIndexForgets: names that are used once do not stay in the index.
func TestIndexForgets(t *testing.T) {
	t.Parallel()
	n := testenv.Rounds(1000, 3000)
	server := testenv.Redis(t)
	client := rawClient(t, server.Addr)
	// Names are forgotten soon after their release.
	b := newEdited(rueidisconn.New(client), nil, func(_, text string) string {
		return strings.ReplaceAll(text, "redis.pcall('SETRANGE', l, '0', 'F') == #v", "redis.call('PEXPIRE', l, 1) == 1")
	})
	s := openSession(t, b, long)
	for i := range n {
		if err := s.Release(within(t, soon), granted(t, s, exclusive(fmt.Sprint("once", i))), 0); err != nil {
			t.Fatal(err)
		}
	}
	left := int64(0)
	for i := range 64 {
		size, err := client.Do(within(t, soon), client.B().Zcard().Key(fmt.Sprintf("hf:{%02x}:i", i)).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		left += size
	}
	if left > int64(n/3) {
		t.Errorf("%d of %d names are still listed", left, n)
	}
	if list, err := b.List(within(t, soon), "", "", 10); err != nil || len(list) != 0 {
		t.Errorf("List: %v, %v", list, err)
	}
}

// subscribers counts the sessions that are subscribed at the server.
func subscribers(t testing.TB, server *testenv.RedisServer) int {
	t.Helper()
	n := 0
	if _, err := fmt.Sscanf(server.Do("EVAL \"return #redis.call('PUBSUB','CHANNELS','hf:s:*')\" 0"), ":%d",
		&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}
