package rueidisconn_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestDialOfAnother: two callers wait for the same connection, and the context of the caller that
// makes it ends. The other caller's request is sent all the same.
func TestDialOfAnother(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	hang := make(chan chan struct{}, 1) // the next attempt to connect closes it, and then hangs
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		select {
		case began := <-hang:
			close(began)
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(ctx)}
		default:
			return new(net.Dialer).DialContext(ctx, network, server.Addr)
		}
	}
	conn, err := rueidisconn.DialContext(t.Context(), "redis://any:1?dial-timeout=1m", dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	script := &redislock.Script{Text: "return 1", SHA1: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	run := map[string]func(context.Context) error{
		"Run": func(ctx context.Context) error { _, err := conn.Run(ctx, script, []string{"k"}, nil); return err },
		"RunAll": func(ctx context.Context) error {
			return conn.RunAll(ctx, []redislock.Call{{Script: script, Keys: []string{"k"}}})[0].Err
		},
	}
	for name, call := range run {
		first, end := context.WithCancel(ctx)
		began := make(chan struct{})
		hang <- began
		server.Do("CLIENT KILL TYPE normal")
		ended := make(chan error, 1)
		go func() {
			var err error
			for err == nil || first.Err() == nil { // until it has had to connect
				err = call(first)
			}
			ended <- err
		}()
		<-began
		other := make(chan error, 1)
		go func() { other <- call(ctx) }()
		for !waitsForConnection() && len(other) == 0 {
			runtime.Gosched()
		}
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the first caller: %v; want its context's error", name, err)
		}
		if err := <-other; err != nil {
			t.Errorf("%s: the other caller: %v", name, err)
		}
	}
}

// waitsForConnection reports whether a caller waits for another one's attempt to connect.
func waitsForConnection() bool {
	stacks := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(g, "rueidis.(*mux)._pipe") && strings.Contains(g, "sync.(*WaitGroup).Wait") {
			return true
		}
	}
	return false
}
