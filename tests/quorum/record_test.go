package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestOtherServers: clients with different sets of servers have majorities without a common server,
// so the second client is refused. So is a client of another database, whose record the scripts do
// not see.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	g := start(t, 5, time.Minute)
	addrs := g.addrs()
	refused := func(what string, servers []quorum.Server, text string) {
		t.Helper()
		b := quorum.New(servers, &quorum.Config{Quarantine: time.Minute})
		defer func() { _ = b.Close() }()
		ctx := within(t)
		s, err := b.Open(ctx, driver.SessionConfig{ID: "x", TTL: time.Second})
		for err == nil && ctx.Err() == nil { // it does not wait for a slow server, and so did not meet both
			if err := s.Close(ctx); err != nil {
				t.Fatal(err)
			}
			s, err = b.Open(ctx, driver.SessionConfig{ID: "x", TTL: time.Second})
		}
		if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Open: %v; want ErrRefused, %s", what, err, text)
		}
		if err := b.Declare(within(t)); !errors.Is(err, driver.ErrRefused) || strings.Count(err.Error(), text) != 1 {
			t.Errorf("%s: Declare: %v; want ErrRefused, and %q once", what, err, text)
		}
	}
	refused("three of the five", at(addrs[:3]), "other servers")
	called := at(addrs)
	called[4].Name = "another"
	refused("another name", called, "other servers")
	moved := at(addrs)
	for i := range moved {
		moved[i].Dial = func(ctx context.Context) (redislock.Conn, error) {
			return rueidisconn.DialContext(ctx, "redis://"+addrs[i]+"/3", nil)
		}
	}
	refused("another database", moved, "database 0")
	twice := at(addrs)
	twice[2].Dial = twice[1].Dial
	refused("one server under two names", twice, "are one server")
	// The order of their names does not matter.
	turned := at(addrs)
	slices.Reverse(turned)
	b := quorum.New(turned, &quorum.Config{Quarantine: time.Minute})
	defer func() { _ = b.Close() }()
	open(t, b, "a", time.Second)
}

// TestRights: a user needs only the permissions in docs/quorum.md.
func TestRights(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/quorum.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, found := strings.Cut(string(text), "    ACL SETUSER ")
	rule, _, _ = strings.Cut(rule, "\n\n")
	if !found {
		t.Fatal("the document has no rule")
	}
	rule = strings.Join(strings.Fields(strings.Replace(rule, ">PASSWORD", ">pw", 1)), " ")
	g := &group{t: t, quarantine: time.Minute}
	for range 3 {
		g.servers = append(g.servers, testenv.RedisACL(t, []string{"user " + rule}))
	}
	all := at(g.addrs())
	for i := range all {
		all[i].Dial = func(ctx context.Context) (redislock.Conn, error) {
			return rueidisconn.DialContext(ctx, "redis://holdfast:pw@"+g.servers[i].Addr, nil)
		}
	}
	b := quorum.New(all, &quorum.Config{Quarantine: time.Minute})
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Declare(within(t)); err != nil {
		t.Fatal(err)
	}
	var clients []*holdfast.Client
	for range 4 {
		c := connect(t, b, nil)
		clients = append(clients, c)
	}
	var all4 sync.WaitGroup
	for _, c := range clients {
		all4.Go(func() { // they come at once: the votes split, and the clients settle that
			for range 20 {
				do(t, c.RWMutex("x").Do, func(context.Context) error { return nil })
				do(t, c.RWMutex("x").RDo, func(context.Context) error { return nil })
			}
		})
	}
	all4.Wait()
	var many sync.WaitGroup
	for i := range 64 { // many goroutines of one client share exchanges
		many.Go(func() {
			for range 20 {
				do(t, clients[0].Mutex(fmt.Sprint(i)).Do, func(context.Context) error { return nil })
			}
		})
	}
	many.Wait()
	shared := false
	for _, s := range g.servers {
		for command, stats := range s.Info("commandstats") {
			shared = shared || command == "cmdstat_mget"
			if !strings.Contains(stats, "rejected_calls=0") && strings.Contains(stats, "rejected_calls=") &&
				command != "cmdstat_select" {
				t.Errorf("refused: %s %s", command, stats)
			}
		}
	}
	if !shared {
		t.Error("no exchange was shared")
	}
}

// TestKept: a name kept after its release is kept by all servers, although a majority was enough to
// take it. Nothing renews it after one of them loses its data.
func TestKept(t *testing.T) {
	t.Parallel()
	// A server that hears of the release after the lease has no vote to keep.
	const quarantine, kept = 10 * time.Second, 15 * time.Second
	for what, min := range map[string]time.Duration{"keep": 0, "minimum hold": kept} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, quarantine)
			s := open(t, g.backend(g.addrs()), "a", quarantine)
			r := try("x", "a-1")
			r.MinHold = min
			taken := time.Now() // not before that
			h := get(t, s, r)
			if err := s.Release(within(t), h, kept-min); err != nil {
				t.Fatal(err)
			}
			for i := range g.servers {
				m := member(t, g, i)
				for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
					rec, err := m.Inspect(within(t), "x")
					if err == nil && len(rec.Holders) == 1 && rec.Holders[0].Kept {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("server %d: %+v, %v", i+1, rec, err)
					}
				}
			}
			g.servers[1].Do("FLUSHALL")
			for i := 0; ; i++ {
				reply, err := s.Acquire(within(t), try("x", fmt.Sprint("b-", i)))
				if err != nil && !passing(err) {
					t.Fatal(err)
				}
				if reply.Token != 0 {
					if d := time.Since(taken); d < kept-100*time.Millisecond {
						t.Errorf("granted again %v after it was asked for; it is kept for %v from the grant", d, kept)
					}
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
}

// TestBusyReaders: many readers and some writers come at once, and all get their turn. Later ones
// have larger tokens.
func TestBusyReaders(t *testing.T) {
	t.Parallel()
	g := start(t, 5, 2*time.Minute)
	const clients, rounds = 16, 8
	var readers, writers atomic.Int64
	var tokens sync.Mutex
	var last uint64 // of those that have left
	var group sync.WaitGroup
	begin := make(chan struct{})
	var done atomic.Int64
	var mu sync.Mutex
	var sessions []driver.Session
	described := make(chan struct{})
	watch := time.AfterFunc(35*time.Second, func() { // a third of the TTL is 40 s: it must not take renewals
		defer close(described)
		t.Errorf("it stands still after %d", done.Load())
		mu.Lock()
		defer mu.Unlock()
		for _, s := range sessions {
			t.Log(hook.QuorumDescribe(s))
		}
	})
	defer func() {
		if !watch.Stop() {
			<-described
		}
	}()
	for i := range clients {
		c := connect(t, spied{g.backend(g.addrs()), &mu, &sessions}, &holdfast.Config{TTL: 2 * time.Minute})
		group.Go(func() {
			<-begin
			for round := range rounds {
				write := (i+round)%6 == 0
				rw := c.RWMutex("x")
				call, mine, others := rw.RDo, &readers, &writers
				if write {
					call, mine = rw.Do, &writers
				}
				tokens.Lock()
				before := last
				tokens.Unlock()
				ok := do(t, call, func(ctx context.Context) error {
					n, m := mine.Add(1), others.Load()
					if write && (n != 1 || readers.Load() != 0) || !write && m != 0 {
						t.Errorf("%d inside, writers: %v; and others", n, write)
					}
					token := holdfast.Token(ctx)
					if token <= before {
						t.Errorf("token %d of a client that came after %d", token, before)
					}
					tokens.Lock()
					last = max(last, token)
					tokens.Unlock()
					mine.Add(-1)
					return nil
				})
				if !ok {
					return
				}
				done.Add(1)
			}
		})
	}
	start := time.Now()
	close(begin)
	group.Wait()
	t.Logf("%d in %v", done.Load(), time.Since(start))
}
