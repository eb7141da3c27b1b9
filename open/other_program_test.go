package open

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestOtherProgram: the URL leads to a server of something else. A session is refused because the store
// is unavailable. It had not been asked anything, so no outcome is unknown.
func TestOtherProgram(t *testing.T) {
	for what, says := range map[string]func(net.Conn){
		"says something": func(c net.Conn) {
			_, _ = c.Write([]byte("SSH-2.0-Other\r\n"))
			_, _ = io.Copy(io.Discard, c)
		},
		"hangs up": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))
			_, _ = c.Read(make([]byte, 1))
		},
	} {
		addr := serve(t, says)
		for _, url := range []string{"redis://" + addr, "mysql://u:p@" + addr + "/d",
			"mariadb://u:p@" + addr + "/d", "postgres://u:p@" + addr + "/d", "zookeeper://" + addr} {
			scheme, _, _ := strings.Cut(url, ":")
			t.Run(what+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				s, err := Open(t.Context(), url)
				if err == nil {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					defer func() { _ = s.Close() }()
					_, err = s.Open(ctx, driver.SessionConfig{ID: "s", TTL: 10 * time.Second})
				}
				if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain) {
					t.Errorf("%v; want ErrUnavailable", err)
				}
			})
		}
	}
}

// serve answers each connection with says until the test ends, and returns its address.
func serve(t *testing.T, says func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				says(c)
			}()
		}
	}()
	return l.Addr().String()
}
