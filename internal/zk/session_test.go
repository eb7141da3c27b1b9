package zk_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

func contextOf(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

func TestSessionEnds(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	other := dial(t, on(server.Addr))

	t.Run("close", func(t *testing.T) {
		s := dial(t, on(server.Addr))
		create(t, s, "/a", zk.Ephemeral)
		lost := newRecorder()
		if _, _, _, err := s.ChildrenW(within(t), "/zookeeper", lost.f); err != nil {
			t.Fatal(err)
		}
		want(t, "close", s.Close(within(t)), nil)
		if exists(t, other, "/a") {
			t.Error("an ephemeral node outlived its session's Close")
		}
		if e := lost.next(t); e != (zk.Event{Type: zk.EventSessionLost, Path: "/zookeeper"}) {
			t.Errorf("%+v", e)
		}
		want(t, "Err", s.Err(), zk.ErrClosed)
		err := s.Delete(within(t), "/a", zk.AnyVersion)
		want(t, "a call after Close", err, zk.ErrClosed)
		want(t, "a call after Close", err, zk.ErrNotSent)
		want(t, "close again", s.Close(within(t)), nil)
	})

	t.Run("expired by the server", func(t *testing.T) {
		s := dial(t, on(server.Addr))
		create(t, s, "/b", zk.Ephemeral)
		server.Expire(s.ID(), s.Password())
		select {
		case <-s.Lost():
		case <-time.After(limit):
			t.Fatal("the expiry was not reported")
		}
		want(t, "Err", s.Err(), zk.ErrSessionExpired)
		if exists(t, other, "/b") {
			t.Error("an ephemeral node of an expired session exists")
		}
		err := s.Sync(within(t), "/")
		want(t, "a call after the end", err, zk.ErrSessionExpired)
		want(t, "a call after the end", err, zk.ErrNotSent)
	})

	t.Run("timeout is negotiated", func(t *testing.T) {
		cfg := on(server.Addr)
		cfg.Timeout = time.Hour
		if got := dial(t, cfg).Timeout(); got != 200*time.Second {
			t.Errorf("%v; the maximum is 200 s", got)
		}
		cfg.Timeout = 10 * time.Millisecond
		if got := dial(t, cfg).Timeout(); got != 200*time.Millisecond {
			t.Errorf("%v; the minimum is 200 ms", got)
		}
	})

	t.Run("idle", func(t *testing.T) {
		cfg := on(server.Addr)
		cfg.Timeout = 8 * time.Second
		s := dial(t, cfg)
		timer := time.NewTimer(cfg.Timeout + time.Second)
		defer timer.Stop()
		select {
		case <-s.Lost():
			t.Fatalf("an idle session was lost: %v", s.Err())
		case <-timer.C:
			if left := s.Left(); left <= 0 || left > cfg.Timeout {
				t.Errorf("%v are left of a session of %v", left, cfg.Timeout)
			}
		}
	})
}

// A request that was issued without a connection must not act in a later session.
func TestRequestIsBoundToItsSession(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	proxy := testenv.Proxy(t, server.Addr)
	other := dial(t, on(server.Addr))
	cfg := on(proxy.Addr)
	a := dial(t, cfg)
	create(t, a, "/lock", zk.Ephemeral)
	proxy.Refuse()
	until(t, "disconnected", func() bool { return !a.Connected() })
	deleted := make(chan error, 1)
	go func() { deleted <- a.Delete(within(t), "/lock", zk.AnyVersion) }()
	server.Expire(a.ID(), a.Password())
	until(t, "the lock is free", func() bool { return !exists(t, other, "/lock") })
	create(t, other, "/lock", zk.Ephemeral)
	proxy.Heal()
	err := <-deleted
	want(t, "the old session's delete", err, zk.ErrNotSent)
	want(t, "the old session's delete", err, zk.ErrSessionExpired)
	b := dial(t, cfg)
	if !exists(t, b, "/lock") {
		t.Error("a request of an old session acted")
	}
}

// silent starts a server that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, c := range all {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

// Calls return when their context ends, and report the outcome of the request.
func TestContextEnds(t *testing.T) {
	const short = 100 * time.Millisecond
	prompt := func(t *testing.T, what string, err error, began time.Time, target error) {
		t.Helper()
		want(t, what, err, context.DeadlineExceeded)
		if target != nil {
			want(t, what, err, target)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: returned after %v", what, took)
		}
	}
	server := testenv.ZooKeeper(t, longSessions)

	for name, addr := range map[string]string{"nobody listens": "127.0.0.1:1", "nobody answers": silent(t),
		"no such name": "x.invalid:1"} {
		t.Run("dial, "+name, func(t *testing.T) {
			ctx, cancel := contextOf(t, short)
			defer cancel()
			began := time.Now()
			_, err := zk.Dial(ctx, on(addr))
			prompt(t, "dial", err, began, nil)
		})
	}
	t.Run("dial, a dialer that ignores its context", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		cfg := on("x:1")
		cfg.Dialer = func(context.Context, string, string) (net.Conn, error) {
			<-release
			return nil, net.ErrClosed
		}
		ctx, cancel := contextOf(t, short)
		defer cancel()
		began := time.Now()
		_, err := zk.Dial(ctx, cfg)
		prompt(t, "dial", err, began, nil)
	})
	t.Run("before", func(t *testing.T) {
		s := dial(t, on(server.Addr))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.Sync(ctx, "/")
		want(t, "ended before", err, zk.ErrNotSent)
		want(t, "ended before", err, context.Canceled)
	})
	t.Run("sent, not answered", func(t *testing.T) {
		proxy := testenv.Proxy(t, server.Addr)
		s, other := dial(t, on(proxy.Addr)), dial(t, on(server.Addr))
		create(t, s, "/x", zk.Ephemeral)
		deliver := proxy.HoldReplies()
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		deleted := make(chan error, 1)
		go func() { deleted <- s.Delete(ctx, "/x", 0) }()
		until(t, "the server has the request", func() bool { return !exists(t, other, "/x") })
		began := time.Now()
		cancel(context.DeadlineExceeded)
		prompt(t, "a call without an answer", <-deleted, began, zk.ErrConnectionLoss)
		deliver()
		want(t, "the session continues", s.Sync(within(t), "/"), nil)
	})
	t.Run("not connected", func(t *testing.T) {
		proxy := testenv.Proxy(t, server.Addr)
		s := dial(t, on(proxy.Addr))
		proxy.Refuse()
		until(t, "disconnected", func() bool { return !s.Connected() })
		ctx, cancel := contextOf(t, short)
		defer cancel()
		began := time.Now()
		prompt(t, "a call while disconnected", s.Delete(ctx, "/x", 0), began, zk.ErrNotSent)
		began = time.Now()
		err := s.Close(ctx)
		prompt(t, "close while disconnected", err, began, zk.ErrNotSent)
		want(t, "Err", s.Err(), zk.ErrClosed)
	})
	t.Run("reconnecting to a server that never answers", func(t *testing.T) {
		proxy := testenv.Proxy(t, server.Addr)
		s := dial(t, shortSession(proxy.Addr))
		proxy.Hole()
		until(t, "disconnected", func() bool { return !s.Connected() })
		ctx, cancel := contextOf(t, short)
		defer cancel()
		began := time.Now()
		prompt(t, "a call", s.Delete(ctx, "/x", 0), began, zk.ErrNotSent)
	})
}

// Requests in flight fail at once when a connection breaks; the session continues.
func TestConnectionBreaks(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	proxy := testenv.Proxy(t, server.Addr)
	s := dial(t, on(strings.Replace(proxy.Addr, "127.0.0.1", "localhost", 1))) // a name
	id := s.ID()
	create(t, s, "/e", zk.Ephemeral)
	proxy.DropReplies()
	failed := make(chan error, 1)
	go func() {
		_, _, err := s.Create(within(t), "/sent", nil, zk.Ephemeral, zk.WorldACL(zk.PermAll))
		failed <- err
	}()
	other := dial(t, on(server.Addr))
	until(t, "the request has acted", func() bool { return exists(t, other, "/sent") })
	proxy.Heal()
	want(t, "a request whose answer was lost", <-failed, zk.ErrConnectionLoss)
	if !exists(t, s, "/e") || s.ID() != id || isLost(s) {
		t.Error("the session did not survive")
	}
	if stat, err := s.Exists(within(t), "/sent"); err != nil || stat.EphemeralOwner != id {
		t.Errorf("the result of the request is missing: %+v, %v", stat, err)
	}
}
