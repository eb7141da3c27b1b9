package goredisconn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

// TestSharedConnection: many channels have one connection. The end of one subscription, or its
// refusal, does not concern the others, not even one to the same channel.
func TestSharedConnection(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{"user some on >secret ~* resetchannels &ok* +@all"})
	c := open(t, &redis.Options{Addr: server.Addr, Username: "some", Password: "secret"})
	const many = 50
	got, stops := make(chan string, 2*many), make([]func(), many)
	for i := range many {
		channel, err := fmt.Sprint("ok", i/2), error(nil) // each has two
		stops[i], err = shared(within(t, soon), c, channel, func(s string) { got <- s }, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if i == many/2 {
			if _, err := shared(within(t, soon), c, "other", func(string) {}, func() {}); !errors.Is(err, driver.ErrRefused) {
				t.Errorf("a channel without permission: %v", err)
			}
		}
	}
	raw := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer func() { _ = raw.Close() }()
	list, err := raw.Do(t.Context(), "CLIENT", "LIST", "TYPE", "PUBSUB").Text()
	if n := strings.Count(list, "\n"); err != nil || n != 1 {
		t.Errorf("%d connections with subscriptions, %v; want 1", n, err)
	}
	for i := 0; i < many; i += 2 {
		stops[i]()
	}
	for i := 1; i < many; i += 2 {
		server.Do(fmt.Sprintf("PUBLISH ok%d %d", i/2, i))
		if s := arrives(t, "a message", got); s != fmt.Sprint(i) {
			t.Errorf("received %q; want %d", s, i)
		}
		stops[i]()
	}
	if s := server.Do("PUBLISH ok0 late"); s != ":0" {
		t.Errorf("a subscription is left: %s", s)
	}
	if len(got) > 0 {
		t.Errorf("received %q", <-got)
	}
}

// TestSharedAstray: the client's address leads to another server, and the old one goes on with the
// connection for subscriptions. All subscriptions go to the new one.
func TestSharedAstray(t *testing.T) {
	t.Parallel()
	old, fresh := testenv.Redis(t), testenv.Redis(t)
	var to atomic.Pointer[testenv.RedisServer]
	to.Store(old)
	c := open(t, leadsTo(&to))
	const many = 10
	again := make(chan struct{}, 100*many)
	for i := range many {
		stop, err := shared(within(t, soon), c, fmt.Sprint("ch", i), func(string) {}, func() { again <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	to.Store(fresh)
	old.Do("CLIENT KILL TYPE normal") // keeps subscriptions
	_, _ = c.Run(within(t, soon), echo, []string{"k"}, nil)
	for range many {
		arrives(t, "the call after another subscription", again)
	}
	for i := range many {
		if s := fresh.Do(fmt.Sprintf("PUBLISH ch%d x", i)); strings.HasPrefix(s, ":0") {
			t.Errorf("ch%d: %s", i, s)
		}
	}
}

// leadsTo returns options of a client that connects to the server that is current.
func leadsTo(to *atomic.Pointer[testenv.RedisServer]) *redis.Options {
	return &redis.Options{Addr: "any:1", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, to.Load().Addr)
	}}
}

// TestSharedAstrayLate: the answer that a server does not have a subscription arrives when the
// subscription has already moved there. The new one stays, and with it those that share its
// connection.
func TestSharedAstrayLate(t *testing.T) {
	t.Parallel()
	old, fresh := testenv.Redis(t), testenv.Redis(t)
	var to atomic.Pointer[testenv.RedisServer]
	to.Store(old)
	client := redis.NewClient(leadsTo(&to))
	questions, answers, moves := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	answer, move := sync.OnceFunc(func() { close(answers) }), sync.OnceFunc(func() { close(moves) })
	client.AddHook(countHook(func(channel string, count func() error) error {
		if to.Load() != fresh {
			return count()
		}
		if channel == "other" {
			<-moves
			return count()
		}
		err := count()
		if err == nil {
			questions <- struct{}{}
			<-answers
		}
		return err
	}))
	c := goredisconn.New(client)
	t.Cleanup(func() {
		move() // Close waits for the questions
		answer()
		_ = c.Close()
		_ = client.Close()
	})
	again := map[string]chan struct{}{}
	for _, channel := range []string{"late", "other"} {
		called := make(chan struct{}, 100)
		again[channel] = called
		stop, err := shared(within(t, soon), c, channel, func(string) {}, func() { called <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	to.Store(fresh)
	old.Do("CLIENT KILL TYPE normal") // keeps subscriptions
	_, _ = c.Run(within(t, soon), echo, []string{"k"}, nil)
	arrives(t, "the question about the first channel", questions)
	move()
	arrives(t, "the move of the first channel", again["late"])
	arrives(t, "the move of the other one", again["other"])
	answer()
	arrives(t, "the next question", questions)
	if n := len(again["late"]) + len(again["other"]); n > 0 {
		t.Errorf("subscribed %d more times", n)
	}
}

// A countHook is called in place of a question for the subscribers of a channel, which count asks.
type countHook func(channel string, count func() error) error

func (countHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (countHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h countHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) == 5 && args[4] == "NUMSUB" {
			return h(args[3].(string), func() error { return next(ctx, cmd) })
		}
		return next(ctx, cmd)
	}
}
