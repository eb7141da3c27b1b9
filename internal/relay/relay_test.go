package relay

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

// caller is a client's connection through the relay.
type caller struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// named is the route of a client that first sends a line: its name, and the server's network and
// address.
func named(_ net.Conn, in *bufio.Reader) (to Ends, err error) {
	_, err = fmt.Fscanf(in, "%s %s %s\n", &to.Client, &to.Network, &to.Server)
	return to, err
}

func call(t *testing.T, r *Relay, head string) *caller {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr)
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

func relayAndEcho(t *testing.T) (*Relay, *echo, func(process string) *caller) {
	t.Helper()
	e := newEcho(t)
	r, err := New(named)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, e, func(process string) *caller { return call(t, r, fmt.Sprintf("%s tcp %s", process, e.addr)) }
}

func TestRelayPasses(t *testing.T) {
	_, e, via := relayAndEcho(t)
	a := via("p1.1")
	a.exchange("one")
	e.came("one")
	long := strings.Repeat("x", 300<<10)
	a.exchange(long)
	e.came(long)
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

// A server that cannot be reached shows as a reset connection.
func TestRelayUnreachable(t *testing.T) {
	r, _, _ := relayAndEcho(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := ln.Addr().String()
	_ = ln.Close()
	call(t, r, "p1.1 tcp "+gone+"").reset()
	call(t, r, "p1.1 unix /does/not/exist").reset()
}

func TestRelayDelay(t *testing.T) {
	r, _, via := relayAndEcho(t)
	a, b := via("p1.1"), via("p2.1")
	a.exchange("warm")
	b.exchange("warm")
	heal := r.Begin(Impairment{Client: "p1.1", Mode: Slow, Delay: 60 * time.Millisecond, Jitter: 20 * time.Millisecond})
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
		mode   Mode
		passes bool // requests
	}{"both": {Hold, false}, "requests": {HoldRequests, false}, "replies": {HoldReplies, true}} {
		t.Run(name, func(t *testing.T) {
			r, e, via := relayAndEcho(t)
			a, idle, other := via("p1.1"), via("p1.1"), via("p2.1")
			for _, x := range []*caller{a, idle, other} {
				x.exchange("warm")
				e.came("warm")
			}
			heal := r.Begin(Impairment{Client: "p1.1", Mode: c.mode})
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
	heal := r.Begin(Impairment{Client: "p1.1", Mode: HoldRequests})
	_ = a.Close()
	withheld := func() bool { // the relay has withheld the end
		r.mu.Lock()
		defer r.mu.Unlock()
		for l := range r.links {
			if l.ends.Client == "p1.1" {
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
	c := call(t, r, "p1.1 tcp "+e2.addr+"")
	for _, x := range []*caller{a, b, c} {
		x.exchange("warm")
	}
	heal := r.Begin(Impairment{Server: e.addr, Mode: Refuse})
	a.reset()
	b.reset()
	c.exchange("on")
	via("p3.1").reset()
	heal()
	via("p1.1").exchange("again")
}

func TestRelayReset(t *testing.T) {
	r, _, via := relayAndEcho(t)
	a, b := via("p1.1"), via("p2.1")
	a.exchange("warm")
	b.exchange("warm")
	if n := r.Reset("p1.1", ""); n != 1 {
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
	heal := r.Begin(Impairment{Client: "p1.1", Mode: ResetReplies})
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
	if n := r.Lost(); n != 2 {
		t.Errorf("%d replies were counted", n)
	}
}

// Close resets all connections, withheld ones too, and waits for their end.
func TestRelayClose(t *testing.T) {
	r, _, via := relayAndEcho(t)
	a, b := via("p1.1"), via("p2.1")
	a.exchange("warm")
	b.exchange("warm")
	r.Begin(Impairment{Client: "p1.1", Mode: Hold})
	a.send("one")
	c, err := net.Dial("tcp", r.Addr) // sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r.Close()
	a.reset()
	b.reset()
}
