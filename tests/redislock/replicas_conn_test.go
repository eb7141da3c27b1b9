package redislock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// write is a script that writes. No server knows it, so its text is sent.
var write = &redislock.Script{
	Text: "return redis.call('SET', KEYS[1], ARGV[1])", SHA1: "0b52ef1a0c1d5f2d2a9f3f1b0ba3b9e6d2f0c111",
}

// confirm waits until a replica has everything that the server has written.
func confirm(t testing.TB, r *testenv.RedisServer) {
	t.Helper()
	conn := dialRueidis(t, r.Addr)
	defer func() { _ = conn.Close() }()
	_, acked, err := conn.RunWait(within(t, soon), []redislock.Call{{Script: write, Keys: []string{"k"},
		Args: []string{"v"}}}, 1, 20*time.Second)
	if acked != 1 || err != nil {
		t.Fatalf("%d replicas have it, %v", acked, err)
	}
}

// WAIT on another connection counts replicas that have not seen the write. RunWait does not.
func TestWaitOnAnotherConnection(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, dial func(testing.TB, string) redislock.Conn) {
		set := testenv.RedisReplicas(t, 1)
		conn := dial(t, set.Primary.Addr)
		defer func() { _ = conn.Close() }()
		set.Replicas[0].Pause()
		calls := []redislock.Call{{Script: write, Keys: []string{"a"}, Args: []string{"1"}},
			{Script: write, Keys: []string{"b"}, Args: []string{"2"}}}
		all, acked, err := conn.RunWait(within(t, soon), calls, 1, 50*time.Millisecond)
		if err != nil || acked != 0 || all[0].Err != nil || all[1].Err != nil {
			t.Errorf("%d replicas, %v; %+v; want none", acked, err, all)
		}
		if lie := set.Primary.Do("WAIT 1 1000"); lie != ":1" {
			t.Errorf("WAIT on a connection that has written nothing: %s; is the trap gone?", lie)
		}
		set.Replicas[0].Continue()
		if _, acked, err = conn.RunWait(within(t, soon), calls, 1, 20*time.Second); err != nil || acked != 1 {
			t.Errorf("%d replicas, %v; want one", acked, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := conn.RunWait(ctx, calls, 1, time.Second); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a context that has ended: %v; want ErrUnavailable", err)
		}
	})
}

// Scripts and WAIT go over one connection, with nothing in between, even if many goroutines ask at
// once and connections are lost. MONITOR shows what the server received.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, dial func(testing.TB, string) redislock.Conn) {
		const goroutines, rounds = 16, 40
		set := testenv.RedisReplicas(t, 1)
		conn := dial(t, set.Primary.Addr)
		defer func() { _ = conn.Close() }()
		seen := monitor(t, set.Primary)
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				failed := 0
				for i := range rounds {
					key := fmt.Sprintf("mark-%d-%d", g, i)
					calls := []redislock.Call{{Script: write, Keys: []string{key + "-a"}, Args: []string{"1"}},
						{Script: write, Keys: []string{key + "-b"}, Args: []string{"2"}}}
					_, acked, err := conn.RunWait(within(t, soon), calls, 1, 10*time.Second)
					if err == nil && acked != 1 {
						t.Errorf("%d replicas have it", acked)
					}
					if err != nil {
						failed++
					}
					if g == 0 && i%10 == 5 {
						set.Primary.Do("CLIENT KILL TYPE normal SKIPME yes")
						seen.again(t, set.Primary) // it was killed, too
					}
				}
				if failed == rounds {
					t.Error("nothing works after connections were lost")
				}
			})
		}
		all.Wait()
		set.Primary.Do("ECHO the-end")
		checked := 0
		for addr, lines := range seen.all(t) {
			for i, line := range lines {
				if !strings.HasPrefix(line, `"wait"`) {
					continue
				}
				if i < 1 || !strings.Contains(lines[i-1], "mark-") {
					t.Fatalf("%s: WAIT after %q", addr, lines[max(i-1, 0)])
				}
				if strings.Contains(lines[i-1], "-b\"") && (i < 2 || !strings.Contains(lines[i-2], "mark-")) {
					t.Fatalf("%s: WAIT after %q", addr, lines[max(i-2, 0):i])
				}
				checked++
			}
		}
		if checked < goroutines*rounds/2 {
			t.Errorf("only %d WAITs were seen", checked)
		}
	})
}

// monitoring collects the output of MONITOR.
type monitoring struct {
	mu    sync.Mutex
	lines map[string][]string // by the client's address
	more  chan struct{}
	end   bool
}

func monitor(t testing.TB, r *testenv.RedisServer) *monitoring {
	m := &monitoring{lines: map[string][]string{}, more: make(chan struct{}, 1)}
	m.again(t, r)
	return m
}

// again connects, and returns when the server has confirmed it.
func (m *monitoring) again(t testing.TB, r *testenv.RedisServer) {
	c, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _ = c.Close() })
	_, _ = fmt.Fprint(c, "MONITOR\r\n")
	in := bufio.NewReader(c)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "+OK") {
		t.Errorf("MONITOR: %q, %v", line, err)
		return
	}
	go func() {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, line, _ = strings.Cut(line, "[0 ")
			addr, line, ok := strings.Cut(line, "] ")
			if !ok || addr == "lua" {
				continue
			}
			m.mu.Lock()
			m.lines[addr] = append(m.lines[addr], strings.ToLower(strings.TrimSpace(line)))
			m.end = m.end || strings.Contains(line, "the-end")
			m.mu.Unlock()
			select {
			case m.more <- struct{}{}:
			default:
			}
		}
	}()
}

// all returns the output up to the-end.
func (m *monitoring) all(t testing.TB) map[string][]string {
	t.Helper()
	for {
		m.mu.Lock()
		lines, end := maps.Clone(m.lines), m.end
		m.mu.Unlock()
		if end {
			return lines
		}
		select {
		case <-m.more:
		case <-time.After(time.Minute):
			t.Fatal("MONITOR has not shown the end")
		}
	}
}

// A request that was given up before its answer leaves nothing, although its cancellation went over
// another connection.
func TestLateGrant(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, dial func(testing.TB, string) redislock.Conn) {
		set := testenv.RedisReplicas(t, 1)
		table := redislock.New(dial(t, set.Primary.Addr), patient)
		s := openSession(t, table, long)
		eventually(t, s, exclusive("warm")) // connections are open
		set.Primary.Pause()
		r := unanswered(t, s, "x")
		if err := s.Cancel(within(t, 100*time.Millisecond), r.Name, r.ID); err == nil {
			t.Error("a frozen server has answered")
		}
		set.Primary.Continue()
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			// The request arrived late, when its replica confirmed what came after it.
			confirm(t, set.Primary)
			rec, err := table.Inspect(within(t, soon), r.Name)
			if err == nil && rec.Kind == driver.Unused {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%+v, %v; want unused", rec, err)
			}
		}
	})
}

// Goroutines that ask at once share a WAIT as they share the script.
func TestReplicasCombined(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 64, 20
	set := testenv.RedisReplicas(t, 1)
	s, table := onServer(t, set.Primary, &redislock.Config{WaitReplicas: 1, WaitTimeout: 2 * time.Second}, long)
	names := make([]string, goroutines)
	ask := func(name string) (driver.Hold, error) {
		r := exclusive(name)
		r.Wait = false
		reply, err := s.Acquire(within(t, soon), r)
		return driver.Hold{Name: name, ID: r.ID, Token: reply.Token}, err
	}
	release := func(h driver.Hold) {
		if err := s.Release(within(t, soon), h, 0); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	for i := range names {
		names[i] = fmt.Sprintf("name-%d", i)
		for range 3 {
			release(eventually(t, s, exclusive(names[i])))
		}
	}
	set.Primary.Do("CONFIG RESETSTAT")
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			for range rounds {
				if h, err := ask(name); err == nil {
					release(h)
				} else if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("Acquire: %v", err)
				}
			}
		})
	}
	all.Wait()
	stat := set.Primary.Info("commandstats")["cmdstat_wait"]
	var waits int
	if _, err := fmt.Sscanf(stat, "calls=%d", &waits); err != nil {
		t.Fatal(stat, err)
	}
	t.Logf("%d grants, %d WAITs", goroutines*rounds, waits)
	if waits > goroutines*rounds*3/4 {
		t.Errorf("%d WAITs for %d grants: nothing is shared", waits, goroutines*rounds)
	}

	set.Cut(0)
	for _, name := range names {
		all.Go(func() {
			h, err := ask(name)
			if !errors.Is(err, driver.ErrUnavailable) || h.Token != 0 {
				t.Errorf("%s: token %d, %v; want ErrUnavailable", name, h.Token, err)
			}
		})
	}
	all.Wait()
	if list, err := table.List(within(t, soon), "", "", 100); err != nil || len(list) != 0 {
		t.Errorf("%d names are in use, %v", len(list), err)
	}
}

func TestReplicasConfig(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for what, cfg := range map[string]redislock.Config{
		"WaitReplicas -1":  {WaitReplicas: -1},
		"WaitReplicas 33":  {WaitReplicas: 33},
		"WaitTimeout 1s":   {WaitTimeout: time.Second},
		"WaitTimeout -1s":  {WaitReplicas: 1, WaitTimeout: -time.Second},
		"WaitTimeout 1µs":  {WaitReplicas: 1, WaitTimeout: time.Microsecond},
		"WaitTimeout 1.1s": {WaitReplicas: 1, WaitTimeout: 1100 * time.Millisecond},
	} {
		b := redislock.New(dialRueidis(t, server.Addr), &cfg)
		_, err := b.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: 3 * time.Second})
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), "allowed") && !strings.Contains(err.Error(), "needs") {
			t.Errorf("%s: %v", what, err)
		}
		_ = b.Close()
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr}})
	defer func() { _ = ring.Close() }()
	b := redislock.New(goredisconn.New(ring), patient)
	defer func() { _ = b.Close() }()
	if _, err := b.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: long}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a Ring: %v; want ErrInvalid", err)
	}
}

// A user without permission for WAIT is refused, and holds nothing.
func TestWaitIsNotPermitted(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{aclRule})
	conn := dialURL(t, "redis://holdfast:secret@"+server.Addr)
	table := redislock.New(conn, patient)
	s := openSession(t, table, long)
	if _, err := s.Acquire(within(t, soon), exclusive("x")); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("%v; want ErrRefused", err)
	}
	unused(t, table, "x")
}

// A URL gives the number of replicas to wait for.
func TestReplicasOfAURL(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	for query, want := range map[string]string{"replicas=1&replica-timeout=9s": "",
		"replicas=2&replica-timeout=100ms": "of 2 replicas confirmed it within 100ms"} {
		table, err := rueidisconn.Open(set.Primary.URL() + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		s := openSession(t, table, long)
		reply, err := s.Acquire(within(t, soon), exclusive(newID()))
		if want != "" {
			unconfirmed(t, reply, err, want)
		} else if err != nil || reply.Token == 0 {
			t.Errorf("%s: %+v, %v", query, reply, err)
		}
		if _, err := table.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: 200 * time.Millisecond}); !errors.Is(err,
			driver.ErrInvalid) {
			t.Errorf("%s with a TTL of 200ms: %v; want ErrInvalid", query, err)
		}
	}
}
