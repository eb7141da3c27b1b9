package rueidisconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
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
