package goredisconn_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// A watcher has one connection, also of a client that keeps idle ones.
func TestTrackConnections(t *testing.T) {
	t.Parallel()
	const idle = 3
	server := testenv.Redis(t)
	var dialed atomic.Int64
	c := open(t, &redis.Options{Addr: server.Addr, MinIdleConns: idle, PoolSize: idle,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	for end := time.Now().Add(soon); dialed.Load() < idle; time.Sleep(time.Millisecond) { // no event reports it
		if time.Now().After(end) {
			t.Fatalf("the client has %d connections; want %d", dialed.Load(), idle)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan string, 10), make(chan error, 1)
	go func() { ended <- c.(redislock.Tracker).Track(ctx, "p", func(key string) { changed <- key }) }()
	defer func() { cancel(); <-ended }()
	arrives(t, "the start", changed)
	server.Do("SET px 1")
	if key := arrives(t, "a key", changed); key != "px" {
		t.Errorf("the key %q; want px", key)
	}
	if n := dialed.Load() - idle; n != 1 {
		t.Errorf("the watcher has %d connections; want 1", n)
	}
}
