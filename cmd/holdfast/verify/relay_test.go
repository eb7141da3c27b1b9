package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo is a server that returns each line, and remembers them.
type echo struct {
	t    *testing.T
	addr string
	got  chan string // every line received
	mu   sync.Mutex
	all  []net.Conn
	wg   sync.WaitGroup
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{t: t, addr: ln.Addr().String(), got: make(chan string, 1000)}
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.all = append(e.all, c)
			e.mu.Unlock()
			e.wg.Go(func() {
				defer func() { _ = c.Close() }()
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					e.got <- line
					if _, err := io.WriteString(c, line); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		e.mu.Lock()
		for _, c := range e.all {
			_ = c.Close()
		}
		e.mu.Unlock()
		e.wg.Wait()
	})
	return e
}

// caller is a worker's connection through the relay.
type caller struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func call(t *testing.T, r *relay, head string) *caller {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, head+"\n"); err != nil {
		t.Fatal(err)
	}
	return &caller{t, c, bufio.NewReader(c)}
}

func (c *caller) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// receives expects this line soon.
func (c *caller) receives(line string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if got, err := c.in.ReadString('\n'); err != nil || got != line+"\n" {
		c.t.Fatalf("%q, %v; want %q", got, err, line)
	}
}

// silent expects no bytes for a while, and that the connection stays open.
func (c *caller) silent() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if b, err := c.in.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("%q, %v; want silence", b, err)
	}
}

// reset expects that the connection ends, and not in order.
func (c *caller) reset() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	b, err := c.in.ReadByte()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) {
		c.t.Fatalf("%q, %v; want a reset", b, err)
	}
}

// exchange sends a line and expects it back.
func (c *caller) exchange(line string) {
	c.t.Helper()
	c.send(line)
	c.receives(line)
}

// came expects that the server gets this line.
func (e *echo) came(line string) {
	e.t.Helper()
	select {
	case got := <-e.got:
		if got != line+"\n" {
			e.t.Fatalf("the server got %q; want %q", got, line)
		}
	case <-time.After(20 * time.Second):
		e.t.Fatalf("the server does not get %q", line)
	}
}

// nothing expects that the server has no further line.
func (e *echo) nothing() {
	e.t.Helper()
	select {
	case got := <-e.got:
		e.t.Fatalf("the server got %q", got)
	default:
	}
}

func relayAndEcho(t *testing.T) (*relay, *echo, func(process string) *caller) {
	t.Helper()
	e := newEcho(t)
	r, err := newRelay("k3y")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r, e, func(process string) *caller { return call(t, r, fmt.Sprintf("%s tcp %s k3y", process, e.addr)) }
}

func TestRelayPasses(t *testing.T) {
	r, e, via := relayAndEcho(t)
	a := via("p1.1")
	a.exchange("one")
	e.came("one")
	long := strings.Repeat("x", 300<<10)
	a.exchange(long)
	e.came(long)
	if got := r.addresses(); len(got) != 1 || got[0] != e.addr {
		t.Errorf("addresses %v", got)
	}
}

// An orderly end stays one, in both directions; bytes sent before it arrive.
func TestRelayOrderlyEnd(t *testing.T) {
	_, e, via := relayAndEcho(t)
	a := via("p1.1")
	a.exchange("one")
	e.came("one")
	a.send("two")
	_ = a.Close()
	e.came("two")
	b := via("p1.1")
	b.exchange("three")
	e.mu.Lock()
	_ = e.all[1].Close()
	e.mu.Unlock()
	_ = b.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := b.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v; want EOF", err)
	}
}

// A client with a wrong key or an invalid first line is reset, and reaches no server.
func TestRelayStrangers(t *testing.T) {
	r, e, _ := relayAndEcho(t)
	for _, head := range []string{
		"", "p1.1", "p1.1 tcp " + e.addr, "p1.1 tcp " + e.addr + " k3", "p1.1 tcp " + e.addr + " k3y ", " tcp " + e.addr + " k3y",
		"p1.1 udp " + e.addr + " k3y", strings.Repeat("x", 2000),
	} {
		call(t, r, head).reset()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) != 0 {
		t.Errorf("%d connections to the server", len(e.all))
	}
}

// A server that cannot be reached shows as a reset connection.
func TestRelayUnreachable(t *testing.T) {
	r, _, _ := relayAndEcho(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := ln.Addr().String()
	_ = ln.Close()
	call(t, r, "p1.1 tcp "+gone+" k3y").reset()
	call(t, r, "p1.1 unix /does/not/exist k3y").reset()
}

func TestRelayDelay(t *testing.T) {
	r, _, via := relayAndEcho(t)
	a, b := via("p1.1"), via("p2.1")
	a.exchange("warm")
	b.exchange("warm")
	heal := r.begin(impairment{process: "p1.1", mode: slow, delay: 60 * time.Millisecond, jitter: 20 * time.Millisecond})
	begin := time.Now()
	a.send("one")
	a.send("two") // at the same time: delays do not add up
	a.receives("one")
	a.receives("two")
	if took := time.Since(begin); took < 120*time.Millisecond {
		t.Errorf("there and back took %v", took)
	}
	heal()
	a.exchange("three")
	b.exchange("three")
}

// Withheld bytes never arrive; other connections go on.
func TestRelayWithholds(t *testing.T) {
	for name, c := range map[string]struct {
		mode   mode
		passes bool // requests
	}{"both": {holdRequests | holdReplies, false}, "requests": {holdRequests, false}, "replies": {holdReplies, true}} {
		t.Run(name, func(t *testing.T) {
			r, e, via := relayAndEcho(t)
			a, idle, other := via("p1.1"), via("p1.1"), via("p2.1")
			for _, x := range []*caller{a, idle, other} {
				x.exchange("warm")
				e.came("warm")
			}
			heal := r.begin(impairment{process: "p1.1", mode: c.mode})
			a.send("withheld")
			if c.passes {
				e.came("withheld")
			}
			a.silent()
			fresh := via("p1.1") // hangs
			fresh.send("withheld too")
			fresh.silent()
			other.exchange("on")
			e.came("on")
			heal()
			a.reset()
			fresh.reset()
			idle.exchange("still")
			e.came("still")
			via("p1.1").exchange("again")
			e.came("again")
			e.nothing()
		})
	}
}

// The server sees the end of a withheld process only when the fault has healed.
func TestRelayWithholdsTheEnd(t *testing.T) {
	r, e, via := relayAndEcho(t)
	a := via("p1.1")
	a.exchange("warm")
	e.came("warm")
	heal := r.begin(impairment{process: "p1.1", mode: holdRequests})
	_ = a.Close()
	withheld := func() bool { // the relay has withheld the end
		r.mu.Lock()
		defer r.mu.Unlock()
		for l := range r.links {
			if l.process == "p1.1" {
				return l.withheld
			}
		}
		t.Fatal("the link is closed")
		return false
	}
	for limit := time.Now().Add(20 * time.Second); !withheld(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the end is not withheld")
		}
	}
	heal()
	via("p1.1").exchange("again")
}

// Faults of a server's address hit all its users, and no other connection.
func TestRelayAddress(t *testing.T) {
	r, e, via := relayAndEcho(t)
	e2 := newEcho(t)
	a, b := via("p1.1"), via("p2.1")
	c := call(t, r, "p1.1 tcp "+e2.addr+" k3y")
	for _, x := range []*caller{a, b, c} {
		x.exchange("warm")
	}
	heal := r.begin(impairment{address: e.addr, mode: refuse})
	a.reset()
	b.reset()
	c.exchange("on")
	via("p3.1").reset()
	heal()
	via("p1.1").exchange("again")
	if got := r.addresses(); len(got) != 2 {
		t.Errorf("addresses %v", got)
	}
}

func TestRelayReset(t *testing.T) {
	r, _, via := relayAndEcho(t)
	a, b := via("p1.1"), via("p2.1")
	a.exchange("warm")
	b.exchange("warm")
	if n := r.reset(impairment{process: "p1.1"}); n != 1 {
		t.Errorf("%d were reset", n)
	}
	a.reset()
	b.exchange("on")
	via("p1.1").exchange("again")
}

// A request arrives, the relay drops its reply, and the connection is reset. New ones work for a
// while.
func TestRelayDropReplies(t *testing.T) {
	r, e, via := relayAndEcho(t)
	a := via("p1.1")
	a.exchange("warm")
	e.came("warm")
	heal := r.begin(impairment{process: "p1.1", mode: dropReplies})
	a.send("one")
	e.came("one")
	a.reset()
	b := via("p1.1")
	dropped := false
	for range 100 {
		b.send("two")
		e.came("two")
		_ = b.SetReadDeadline(time.Now().Add(20 * time.Second))
		if line, err := b.in.ReadString('\n'); err != nil {
			dropped = true
			break
		} else if line != "two\n" {
			t.Fatalf("%q", line)
		}
	}
	if !dropped {
		t.Error("a connection opened during the fault never loses a reply")
	}
	heal()
	c := via("p1.1")
	for range 100 {
		c.exchange("three")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost != 2 {
		t.Errorf("%d replies were counted", r.lost)
	}
}

// Close resets all connections, withheld ones too, and waits for their end.
func TestRelayClose(t *testing.T) {
	r, _, via := relayAndEcho(t)
	a, b := via("p1.1"), via("p2.1")
	a.exchange("warm")
	b.exchange("warm")
	r.begin(impairment{process: "p1.1", mode: holdRequests | holdReplies})
	a.send("one")
	c, err := net.Dial("tcp", r.addr) // sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r.close()
	a.reset()
	b.reset()
}
