package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRedis(t *testing.T) {
	r := Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	if got := r.Do("SET a 1"); got != "+OK" {
		t.Fatal(got)
	}
	for _, graceful := range []bool{true, false} {
		r.Restart(graceful)
		if got := r.Do("EXISTS a"); got != ":1" {
			t.Fatalf("after a restart (graceful: %v): %s", graceful, got)
		}
	}
	r.Pause()
	c := dial(t, r.Addr)
	sendPing(t, c)
	if _, err := answer(c, 50*time.Millisecond); !timeout(err) {
		t.Errorf("a frozen server: %v", err)
	}
	r.Continue()
	if _, err := answer(c, 30*time.Second); err != nil {
		t.Errorf("after Continue: %v", err)
	}
	if got := RedisTLS(t).Do("PING"); got != "+PONG" {
		t.Error(got)
	}
	if got := RedisACL(t, []string{"user u on >p ~* +@all"}).Do("AUTH u p"); got != "+OK" {
		t.Error(got)
	}
}

func TestProxy(t *testing.T) {
	r := Redis(t)
	p := Proxy(t, r.Addr)
	works := func() net.Conn {
		t.Helper()
		c := dial(t, p.Addr)
		sendPing(t, c)
		if s, err := answer(c, 30*time.Second); err != nil || s != "+PONG" {
			t.Fatalf("%q, %v", s, err)
		}
		return c
	}
	broken := func(c net.Conn, when string) {
		t.Helper()
		if _, err := answer(c, 30*time.Second); err == nil || timeout(err) {
			t.Errorf("%s: %v; want a broken connection", when, err)
		}
	}

	c := works()
	p.Reset()
	broken(c, "Reset")
	c = works()

	p.Refuse()
	broken(c, "Refuse")
	if c, err := net.Dial("tcp", p.Addr); err == nil {
		_, err = answer(c, 30*time.Second)
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("Refuse: %v", err)
		}
	}
	p.Heal()

	c, idle := works(), works()
	p.Hole()
	if _, err := fmt.Fprintf(c, "SET hole 1\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(c, 50*time.Millisecond); !timeout(err) {
		t.Errorf("Hole: %v", err)
	}
	p.Heal()
	broken(c, "Heal after Hole")
	if got := r.Do("EXISTS hole"); got != ":0" {
		t.Error("data that a hole withheld arrived later")
	}
	sendPing(t, idle)
	if _, err := answer(idle, 30*time.Second); err != nil {
		t.Errorf("an unaffected connection: %v", err)
	}

	c = works()
	p.DropReplies()
	if _, err := fmt.Fprintf(c, "SET dropped 1\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(c, 50*time.Millisecond); !timeout(err) {
		t.Errorf("DropReplies: %v", err)
	}
	if got := r.Do("EXISTS dropped"); got != ":1" {
		t.Error("the request was not carried out")
	}
	p.Heal()
	broken(c, "Heal after DropReplies")

	c = works()
	p.Delay(30 * time.Millisecond)
	start := time.Now()
	sendPing(t, c)
	if _, err := answer(c, 30*time.Second); err != nil || time.Since(start) < 60*time.Millisecond {
		t.Errorf("Delay: %v after %v", err, time.Since(start))
	}
	p.Heal()
	works()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func sendPing(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
}

func answer(c net.Conn, d time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return "", err
	}
	s, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(s), err
}

func timeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
