package lab

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Only this process reaches the server through a relay, and the server gets what a cut has withheld.
func TestRelayed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	got := make(chan string, 4)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				close(got)
				return
			}
			b, _ := io.ReadAll(c)
			got <- string(b)
			_ = c.Close()
		}
	}()
	n, err := newRelayed("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	stranger, err := net.Dial("tcp", n.relay.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	_ = stranger.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(stranger, "not the key\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stranger's connection: %v; want its end", err)
	}
	c, err := n.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	n.set(cut)
	if _, err := io.WriteString(c, "late"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	select {
	case text := <-got:
		t.Errorf("the server got %q through a cut", text)
	case <-time.After(50 * time.Millisecond):
	}
	n.heal()
	select {
	case text := <-got:
		if text != "late" {
			t.Errorf("the server got %q after the cut", text)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server got nothing after the cut")
	}
	n.set(dead)
	if c, err := n.dial(t.Context(), "", ""); err == nil {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a dead program's connection: %v; want its end", err)
		}
		_ = c.Close()
	}
}
