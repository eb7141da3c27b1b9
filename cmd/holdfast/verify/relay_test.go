package verify

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A client with a wrong key or an invalid first line is reset, and reaches no server. The relay
// knows which servers its workers reach.
func TestRelayStrangers(t *testing.T) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	addr := ln.Addr().String()
	r, err := newWorkerRelay("k3y")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	call := func(head string) net.Conn {
		c, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, head+"\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, head := range []string{
		"", "p1.1", "p1.1 tcp " + addr, "p1.1 tcp " + addr + " k3", "p1.1 tcp " + addr + " k3y ", " tcp " + addr + " k3y",
		"p1.1 udp " + addr + " k3y", strings.Repeat("x", 2000),
	} {
		c := call(head)
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) || err == io.EOF {
			t.Fatalf("%.50q: %d, %v; want a reset", head, n, err)
		}
	}
	if got := r.addresses(); len(got) != 0 {
		t.Errorf("strangers requested %v", got)
	}
	const text = "from the worker"
	_, _ = io.WriteString(call("p1.1 tcp "+addr+" k3y"), text) // the server reports a failure
	_ = ln.SetDeadline(time.Now().Add(20 * time.Second))
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Errorf("the first connection carries %q, %v; want %q", got, err, text)
	}
	if got := r.addresses(); !slices.Equal(got, []string{addr}) {
		t.Errorf("addresses %v; want %v", got, addr)
	}
}
