package goredisconn_test

import (
	"context"
	"errors"
	"fmt"
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
)

var echo = &redislock.Script{Text: "return {1, ARGV[1], {KEYS[1], false}}",
	SHA1: "3bd0a52e9e17b9a4d0a7e0c1c5b2d5d8b5f5e9aa"}

func open(t *testing.T, opt *redis.Options) redislock.Conn {
	client := redis.NewClient(opt)
	c := goredisconn.New(client)
	t.Cleanup(func() {
		_ = c.Close()
		_ = client.Close()
	})
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// soon bounds what a working program does at once, on any machine.
const soon = time.Minute

func TestRun(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for _, obedient := range []bool{false, true} {
		c := open(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: obedient})
		// The server does not know the hash, so both send the text in the end.
		v, err := c.Run(within(t, soon), echo, []string{"k"}, []string{"a"})
		const want = "{3 0  [{1 1  []} {2 0 a []} {3 0  [{2 0 k []} {0 0  []}]}]}"
		if got := fmt.Sprint(v); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		for _, r := range c.RunAll(within(t, soon), []redislock.Call{{Script: echo, Keys: []string{"k"}, Args: []string{"a"}},
			{Script: echo, Keys: []string{"k"}, Args: []string{"a"}}}) {
			if got := fmt.Sprint(r.Value); r.Err != nil || got != want {
				t.Errorf("%s, %v; want %s", got, r.Err, want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{"user weak on >pw ~hf:* &hf:* +@connection"})
	is := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", what, err, want)
		}
	}
	run := func(opt *redis.Options, d time.Duration) error {
		_, err := open(t, opt).Run(within(t, d), echo, []string{"hf:k"}, []string{"a"})
		return err
	}
	is("wrong password", run(&redis.Options{Addr: server.Addr, Username: "weak", Password: "no"}, soon), driver.ErrRefused)
	is("no permission", run(&redis.Options{Addr: server.Addr, Username: "weak", Password: "pw"}, soon), driver.ErrRefused)
	_, err := open(t, &redis.Options{Addr: server.Addr, Username: "weak", Password: "pw"}).
		Subscribe(within(t, soon), "hf:s:x", func(string) {}, func() {})
	is("no permission to subscribe", err, driver.ErrRefused)

	for obedient, timeout := range map[bool]time.Duration{false: 300 * time.Millisecond, true: 2 * soon} {
		server.Pause()
		start := time.Now()
		is("frozen", run(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: obedient, ReadTimeout: timeout},
			200*time.Millisecond), driver.ErrUncertain)
		if d := time.Since(start); obedient && d > soon { // otherwise a Backend leaves the call
			t.Errorf("a frozen server held up a request with a context of 200 ms for %v", d)
		}
		server.Continue()
	}
	server.Kill()
	is("down", run(&redis.Options{Addr: server.Addr}, soon), driver.ErrUnavailable)
	c := open(t, &redis.Options{Addr: server.Addr})
	_ = c.Close()
	_, err = c.Run(within(t, time.Second), echo, []string{"k"}, nil)
	is("closed", err, driver.ErrClosed)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = open(t, &redis.Options{Addr: server.Addr}).Run(ctx, echo, []string{"k"}, nil)
	is("a context that has ended", err, driver.ErrUnavailable)
}

// TestSilentSubscription: a subscription on a black-holed connection is replaced, although no error
// was ever reported.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	for name, subscribe := range map[string]subscriber{"alone": alone, "shared": shared} {
		t.Run(name, func(t *testing.T) { t.Parallel(); silentSubscription(t, subscribe) })
	}
}

// subscriber is Subscribe or SubscribeMany.
type subscriber func(ctx context.Context, c redislock.Conn, channel string, message func(string), again func()) (
	stop func(), err error)

func alone(ctx context.Context, c redislock.Conn, channel string, message func(string), again func()) (func(), error) {
	return c.Subscribe(ctx, channel, message, again)
}

func shared(ctx context.Context, c redislock.Conn, channel string, message func(string), again func()) (func(), error) {
	return c.(redislock.ManySubscriber).SubscribeMany(ctx,
		redislock.Channel{Name: channel, Message: message, Again: again})
}

func silentSubscription(t *testing.T, subscribe subscriber) {
	server := testenv.Redis(t)
	proxy := testenv.Proxy(t, server.Addr)
	dialed := make(chan struct{}, 100)
	c := open(t, &redis.Options{
		Addr: proxy.Addr, ReadTimeout: time.Second,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed <- struct{}{}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	got, again := make(chan string, 16), make(chan struct{}, 16)
	stop, err := subscribe(within(t, soon), c, "ch", func(s string) { got <- s }, func() { again <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	for len(dialed) > 0 {
		<-dialed
	}
	proxy.DropReplies() // requests arrive: only the missing answers show it
	if s := server.Do("PUBLISH ch lost"); s != ":1" {
		t.Fatal(s)
	}
	arrives(t, "another connection", dialed)
	proxy.Heal()
	arrives(t, "the call after another subscription", again)
	if s := server.Do("PUBLISH ch found"); strings.HasPrefix(s, ":0") {
		t.Fatal(s)
	}
	if s := arrives(t, "a message", got); s != "found" {
		t.Errorf("received %q", s)
	}
	stop()
}

func arrives[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(soon):
		t.Fatalf("%s did not arrive", what)
	}
	return v
}

// TestRunWaitAtOnce: many calls open the first connections of a client at once and share nothing
// that go-redis writes to when it connects. The race detector checks that.
func TestRunWaitAtOnce(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for range 10 {
		c := open(t, &redis.Options{Addr: server.Addr, ReadTimeout: 10 * time.Second})
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				calls := []redislock.Call{{Script: echo, Keys: []string{"k"}, Args: []string{"a"}}}
				if r, _, err := c.RunWait(within(t, time.Minute), calls, 0, time.Second); err != nil || r[0].Err != nil {
					t.Errorf("RunWait: %v, %v", err, r)
				}
			})
		}
		all.Wait()
	}
}

// A client that is nil is refused: a program uses a variable that it has not set yet.
func TestNilClient(t *testing.T) {
	t.Parallel()
	for _, client := range []redis.UniversalClient{
		nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil),
	} {
		b := redislock.New(goredisconn.New(client), nil)
		_, err := b.Open(within(t, soon), driver.SessionConfig{ID: "a", TTL: time.Minute})
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "client: it is nil") {
			t.Errorf("%T: %v; want ErrInvalid", client, err)
		}
		if _, err := b.List(within(t, soon), "", "", 1); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("List: %v; want ErrInvalid", err)
		}
		if _, err := b.History(within(t, soon), "x"); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("History: %v; want ErrInvalid", err)
		}
		if err := b.Watch(within(t, time.Second), "", func(string) {}); err == nil {
			t.Error("Watch returned no error")
		}
		if _, err := b.Diagnose(within(t, soon), time.Minute); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Diagnose: %v; want ErrInvalid", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
