package rueidisconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// A server that does not answer: the error of Dial says how long it asked, and mentions no
// deadline, because the caller set none.
func TestDialToASilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the system accepts connections, but no program reads them
	for _, url := range []string{"redis://HOST", "redis+sentinel://HOST/m", "redis+cluster://HOST"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			_, err := Dial(strings.Replace(url, "HOST", l.Addr().String(), 1))
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), " after ") || strings.Contains(err.Error(), "deadline") {
				t.Errorf("%v; want ErrUnavailable with the time", err)
			}
		})
	}
}

// The end of the context ends the attempt to connect to a server that does not answer. Without that it would take a
// minute here.
func TestDialContext(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://HOST", "rediss://HOST", "redis+sentinel://HOST/m", "redis+cluster://HOST"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			ctx, cancel := context.WithCancel(t.Context())
			go func() { // the client has connected, and waits for an answer
				if c, err := l.Accept(); err == nil {
					_, _ = c.Read(make([]byte, 1))
					cancel()
				}
			}()
			began := time.Now()
			_, err = DialContext(ctx, strings.Replace(url, "HOST", l.Addr().String(), 1)+"?dial-timeout=1m&read-timeout=1m", nil)
			if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v; want ErrUnavailable and the context's error", err)
			}
			if d := time.Since(began); d > 30*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// A context that ends after DialContext has returned does not affect the connection.
func TestDialContextEndsLater(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := DialContext(ctx, testenv.Redis(t).URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	cancel()
	script := &redislock.Script{Text: "return 1", SHA1: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"}
	for range 2 {
		if _, err := c.Run(t.Context(), script, []string{"k"}, nil); err != nil {
			t.Error(err)
		}
	}
}
