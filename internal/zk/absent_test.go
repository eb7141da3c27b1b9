package zk

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// refused returns the error of a connection that nothing accepts.
func refused(addr string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.Join(errors.New(addr), syscall.ECONNREFUSED)}
}

// If no server runs, Dial soon returns an error that names each address. It waits for servers that
// accept connections and are silent.
func TestNothingListens(t *testing.T) {
	for name, c := range map[string]struct {
		servers []string
		silent  string // one of them
		soon    bool
	}{
		"one": {[]string{"a:1"}, "", true}, "several": {[]string{"a:1", "b:2"}, "", true},
		"one is silent": {[]string{"a:1", "b:2"}, "b:2", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := Dial(ctx, Config{Servers: c.servers, Timeout: 15 * time.Second,
					Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
						if addr == c.silent {
							<-ctx.Done()
							return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
						}
						return nil, refused(addr)
					}})
				took := time.Since(began)
				if soon := took < 5*time.Second; soon != c.soon || took < time.Second {
					t.Errorf("given up after %v", took)
				}
				if !errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "deadline") == c.soon {
					t.Error(err)
				}
				for _, addr := range c.servers {
					if addr != c.silent && !strings.Contains(err.Error(), addr) {
						t.Errorf("%v: it does not name %s", err, addr)
					}
				}
			})
		})
	}
}

// A server that is starting refuses connections for a moment.
func TestServerStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := &fake{answer: func(opcode, *decoder, *encoder) Code { return 0 }}
		s, err := Dial(t.Context(), Config{Servers: []string{"a:1"}, Timeout: 2 * time.Second,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if time.Since(began) < absenceLimit*3/4 {
					return nil, refused(addr)
				}
				return f.dial(ctx, network, addr)
			}})
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close(t.Context())
		synctest.Wait()
	})
}
