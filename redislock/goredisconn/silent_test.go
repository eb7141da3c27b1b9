package goredisconn

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
)

// soon bounds what takes a few seconds, on any machine.
const soon = 30 * time.Second

// TestRefresh: a server that does not answer the question for the slots does not keep the client
// from asking another.
func TestRefresh(t *testing.T) {
	var asked atomic.Bool
	answer := make(chan struct{})
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			if !asked.Swap(true) {
				<-answer
			}
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
		},
	})
	defer client.Close()
	c := New(client).(*conn)
	defer c.Close()
	defer close(answer)
	done := make(chan error, 1)
	go func() {
		c.refresh()
		_, err := client.MasterForKey(t.Context(), "x") // it asks if the slots are not known
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Error("it waits for the silent server")
	}
}

// TestOpenAtSilentServer: to subscribe at a server that accepts connections and says nothing does not
// take the client's ReadTimeout.
func TestOpenAtSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ReadTimeout: time.Hour,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: l.Addr().String()}}}}, nil
		},
	})
	defer client.Close()
	c := New(client).(*conn)
	defer c.Close()
	ended := make(chan error, 1)
	go func() {
		sub := c.openShard("x")
		defer sub.Close()
		_, err := c.receive(sub)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || strings.Contains(err.Error(), "closed") {
			t.Errorf("%v; want a timeout", err)
		}
	case <-time.After(soon):
		t.Fatal("it waits for the silent server")
	}
}

// TestClientClosed: that what the client has at one server is closed does not mean that the client
// is. Once the program has closed the client, all of them are.
func TestClientClosed(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:2"}}}}, nil
		},
	})
	c := New(client).(*conn)
	defer c.Close()
	node, err := client.MasterForKey(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	for range 20 { // a check that asks a random server is sometimes wrong
		if c.clientClosed(redis.ErrClosed) {
			t.Fatal("the client is taken for closed")
		}
	}
	_ = client.Close() // it reports that one was closed before
	if !c.clientClosed(redis.ErrClosed) {
		t.Error("the client is taken for open")
	}
}

// TestCloseBesideSubscribe: Close waits for each subscription that has begun, and ends it. None begins after it.
func TestCloseBesideSubscribe(t *testing.T) {
	client := redis.NewClient(&redis.Options{MaxRetries: -1,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }})
	defer client.Close()
	for range 500 {
		c := New(client)
		subscribed := make(chan error, 1)
		go func() {
			_, err := c.Subscribe(t.Context(), "x", func(string) {}, func() {})
			subscribed <- err
		}()
		time.Sleep(rand.N(200 * time.Microsecond))
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-subscribed; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Subscribe: %v; want ErrClosed", err)
		}
	}
}
