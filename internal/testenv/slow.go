package testenv

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// SlowBody sends a request whose body does not come: head is its first lines, without a Host. It returns
// the status of the answer, and how long the answer and the end of the connection took. To be called in a
// bubble of synctest, whose clock the deadlines of the connection follow.
func SlowBody(t testing.TB, h http.Handler, head string) (status int, took time.Duration) {
	t.Helper()
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l := &pipes{make(chan net.Conn), make(chan struct{})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	mine, its := net.Pipe()
	defer func() { _, _ = mine.Close(), server.Close(); <-ended }()
	l.conns <- its
	began := time.Now()
	must(t, mine.SetDeadline(began.Add(time.Hour)))
	go func() { _, _ = io.WriteString(mine, head+"Host: localhost\r\nContent-Length: 100\r\n\r\n{") }()
	in := bufio.NewReader(mine)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Errorf("%q: no answer after %v: %v", head, time.Since(began), err)
		return 0, time.Since(began)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if _, err := in.Peek(1); err == nil {
		t.Errorf("%q: there is more than one answer", head)
	}
	return r.StatusCode, time.Since(began)
}

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	over  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.over); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
