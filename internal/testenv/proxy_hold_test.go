package testenv

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

func TestHold(t *testing.T) {
	r := Redis(t)
	p := Proxy(t, r.Addr)
	has := func(key string) bool { t.Helper(); return r.Do("EXISTS "+key) == ":1" }
	send := func(c net.Conn, key string) {
		t.Helper()
		if _, err := fmt.Fprintf(c, "SET %s 1\r\n", key); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(key string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !has(key); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s did not arrive", key)
			}
		}
	}

	stays, closes, resets := working(t, p), working(t, p), working(t, p)
	deliver := p.Hold()
	send(stays, "stays")
	send(closes, "closes")
	send(resets, "resets")
	must(t, closes.Close())
	must(t, resets.(*net.TCPConn).SetLinger(0))
	_ = resets.Close()
	later := working(t, p)
	send(later, "later")
	arrives("later")
	if _, err := answer(stays, 50*time.Millisecond); !timeout(err) {
		t.Errorf("a request that was kept back: %v", err)
	}
	for _, key := range []string{"stays", "closes", "resets"} {
		if has(key) {
			t.Errorf("%s was not kept back", key)
		}
	}
	deliver()
	for _, key := range []string{"stays", "closes", "resets"} {
		arrives(key)
	}
	if s, err := answer(stays, 30*time.Second); err != nil || s != "+OK" {
		t.Errorf("the answer after the delivery: %q, %v", s, err)
	}
	send(stays, "again")
	arrives("again")
	deliver() // once is enough

	// The server learns of an end that came while data was kept back.
	for end := time.Now().Add(30 * time.Second); clients(t, r) > 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections; want 2, and the one that asks", clients(t, r))
		}
	}

	// The other direction is not affected.
	listens := working(t, p)
	if _, err := fmt.Fprint(listens, "SUBSCRIBE c\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(listens, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	deliver = p.Hold()
	if got := r.Do("PUBLISH c x"); got != ":1" {
		t.Fatal(got)
	}
	if _, err := answer(listens, 30*time.Second); err != nil {
		t.Errorf("a message to a connection with data kept back: %v", err)
	}
	p.Reset() // ends the connection and discards its data
	deliver()
	working(t, p)
}

func TestForget(t *testing.T) {
	r := Redis(t)
	p := Proxy(t, r.Addr)
	idle, c := working(t, p), working(t, p)
	before := clients(t, r)
	p.Forget()
	if _, err := fmt.Fprint(c, "SET forgotten 1\r\n"); err != nil {
		t.Fatal(err)
	}
	silent := func(when string) {
		t.Helper()
		for _, c := range []net.Conn{idle, c} {
			if _, err := answer(c, 50*time.Millisecond); !timeout(err) {
				t.Errorf("%s: %v; want silence", when, err)
			}
		}
	}
	silent("Forget")
	works := working(t, p)
	p.Hole()
	p.Heal()
	p.Reset()
	silent("Heal and Reset after Forget")
	if _, err := answer(works, 30*time.Second); err == nil || timeout(err) {
		t.Errorf("Reset of a connection that was not forgotten: %v", err)
	}
	if got := r.Do("EXISTS forgotten"); got != ":0" {
		t.Error("a forgotten connection carried data")
	}
	must(t, c.Close())
	time.Sleep(50 * time.Millisecond)
	for end := time.Now().Add(30 * time.Second); clients(t, r) > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the one that was reset
	}
	if now := clients(t, r); now != before {
		t.Errorf("the server has %d connections; want the same %d as before", now, before)
	}
}

func TestProxiesHold(t *testing.T) {
	a, b := Redis(t), Redis(t)
	p := Proxies(t, []string{a.Addr, b.Addr})
	var conns []net.Conn
	for _, r := range []*RedisServer{a, b} {
		c, err := p.Dial(context.Background(), "tcp", r.Addr)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		sendPing(t, c)
		if _, err := answer(c, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	deliver := p.Hold()
	for _, c := range conns {
		sendPing(t, c)
		if _, err := answer(c, 50*time.Millisecond); !timeout(err) {
			t.Errorf("kept back: %v", err)
		}
	}
	deliver()
	for _, c := range conns {
		if s, err := answer(c, 30*time.Second); err != nil || s != "+PONG" {
			t.Errorf("after the delivery: %q, %v", s, err)
		}
	}
	p.Each((*TCPProxy).Forget)
	for _, c := range conns {
		sendPing(t, c)
		if _, err := answer(c, 50*time.Millisecond); !timeout(err) {
			t.Errorf("forgotten: %v", err)
		}
	}
}

// working returns a connection through p that has carried data.
func working(t *testing.T, p *TCPProxy) net.Conn {
	t.Helper()
	c := dial(t, p.Addr)
	sendPing(t, c)
	if s, err := answer(c, 30*time.Second); err != nil || s != "+PONG" {
		t.Fatalf("%q, %v", s, err)
	}
	return c
}

// clients returns how many connections the server has, with the one that asks.
func clients(t *testing.T, r *RedisServer) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(r.Info("clients")["connected_clients"], &n); err != nil {
		t.Fatal(err)
	}
	return n
}
