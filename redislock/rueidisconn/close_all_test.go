package rueidisconn_test

import (
	"context"
	"crypto/sha1"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// counted counts itself as open until it is closed.
type counted struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func dialCounted(t *testing.T, url string) (redislock.Conn, *atomic.Int64) {
	t.Helper()
	open := new(atomic.Int64)
	c, err := rueidisconn.DialContext(t.Context(), url,
		func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &counted{Conn: nc, open: open}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return c, open
}

// closesAll closes c, and waits until no connection is open.
func closesAll(t *testing.T, c redislock.Conn, open *atomic.Int64) {
	t.Helper()
	began := time.Now()
	_ = c.Close()
	for open.Load() > 0 && time.Since(began) < 20*time.Second {
		time.Sleep(time.Millisecond)
	}
	if d := time.Since(began); d > 800*time.Millisecond {
		t.Errorf("the last connection was closed %v after Close", d)
	}
}

// TestTimedCloseCluster: the servers of a Cluster are frozen. The client closes its connections in the
// background, and alone that takes a second.
func TestTimedCloseCluster(t *testing.T) {
	cluster := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
	c, open := dialCounted(t, cluster.URL(""))
	for _, s := range cluster.Servers {
		s.Pause()
	}
	closesAll(t, c, open)
}

// TestTimedCloseBesideRunWait: a request waits for replicas that do not exist.
func TestTimedCloseBesideRunWait(t *testing.T) {
	server := testenv.Redis(t)
	c, open := dialCounted(t, server.URL())
	const text = "return redis.call('SET', KEYS[1], 1)"
	script := &redislock.Script{Text: text, SHA1: fmt.Sprintf("%x", sha1.Sum([]byte(text)))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = c.RunWait(t.Context(), []redislock.Call{{Script: script, Keys: []string{"k"}}}, 1, 10*time.Second)
	}()
	for server.Info("clients")["blocked_clients"] != "1" {
		time.Sleep(time.Millisecond)
	}
	closesAll(t, c, open)
	<-ended
}
