package lab

import (
	"context"
	"net"
	"testing"
	"time"
)

// An interrupt ends the question whether ZooKeeper serves, which a starting server may never answer.
func TestZooKeeperStartInterrupted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		asked <- c
		cancel()
	}()
	began := time.Now()
	err = (&zkServer{addr: l.Addr().String()}).serves(ctx)
	if c := <-asked; c != nil {
		_ = c.Close()
	}
	if took := time.Since(began); err == nil || took > 10*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}
