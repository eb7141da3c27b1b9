package rueidisconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// hooked calls read after each read.
type hooked struct {
	net.Conn
	read func(n int)
}

func (c hooked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read(n)
	return n, err
}

// The context ends when the client has its last answer. DialContext returns an error, or a Conn that works.
func TestContextEndsAsDialReturns(t *testing.T) {
	url := testenv.Redis(t).URL()
	script := &redislock.Script{Text: "return 1", SHA1: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"}
	// How many reads does the attempt take?
	var reads atomic.Int64
	dial := func(on func(n int64)) Dialer {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return hooked{nc, func(int) { on(reads.Add(1)) }}, nil
		}
	}
	c, err := DialContext(t.Context(), url, dial(func(int64) {}))
	if err != nil {
		t.Fatal(err)
	}
	last := reads.Load()
	_ = c.Close()
	for range 20 {
		reads.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		c, err := DialContext(ctx, url, dial(func(n int64) {
			if n == last {
				once.Do(func() { cancel(); time.Sleep(time.Millisecond) })
			}
		}))
		if err == nil {
			_, err = c.Run(t.Context(), script, []string{"k"}, nil)
			_ = c.Close()
			if err != nil {
				t.Error("the first request:", err)
			}
		} else if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
		cancel()
	}
}

// The server's machine has gone, and does not answer an attempt to connect. Close does not wait for that.
func TestCloseWhileDialling(t *testing.T) {
	url := testenv.Redis(t).URL() + "?dial-timeout=1m"
	var gone atomic.Bool
	var mu sync.Mutex
	var open []net.Conn
	dialling := make(chan struct{}, 100)
	c, err := DialContext(t.Context(), url, func(ctx context.Context, network, address string) (net.Conn, error) {
		if gone.Load() {
			dialling <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var d net.Dialer
		nc, err := d.DialContext(ctx, network, address)
		if err == nil {
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
		}
		return nc, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(t.Context(), "hf:s:a", func(string) {}, func() {}); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	mu.Lock()
	for _, nc := range open {
		_ = nc.Close()
	}
	mu.Unlock()
	<-dialling
	began := time.Now()
	_ = c.Close()
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("Close took %v", d)
	}
}
