package relay

import (
	"bufio"
	"net"
	"testing"
)

// A further address leads to its server without a first line, is disturbed as its client, and can be
// ended by itself.
func TestRelayForward(t *testing.T) {
	r, e, _ := relayAndEcho(t)
	addr, stop, err := r.Forward(Ends{Client: "p2.1", Server: e.addr})
	if err != nil {
		t.Fatal(err)
	}
	dial := func() *caller {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return &caller{t: t, Conn: c, in: bufio.NewReader(c)}
	}
	a := dial()
	a.exchange("one")
	e.came("one")
	if n := r.Reset("p1.1", ""); n != 0 {
		t.Errorf("%d connections of another client", n)
	}
	if n := r.Reset("p2.1", e.addr); n != 1 {
		t.Errorf("%d connections of the client", n)
	}
	a.reset()
	b := dial()
	b.exchange("before") // the relay has accepted it: a listener that closes ends the others
	e.came("before")
	stop()
	b.exchange("two")
	e.came("two")
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}
