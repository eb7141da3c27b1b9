package zookeeper

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// A server that starts may never answer a connection. Mode gives it up, so that the caller asks
// again on another.
func TestModeOfAConnectionWithoutAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil { // that of the callers
		t.Fatal(err)
	}
	began := time.Now()
	if mode, err := Mode(c); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > 15*time.Second {
		t.Errorf("%q, %v after %v", mode, err, time.Since(began))
	}
}
