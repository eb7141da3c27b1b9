package lab

import (
	"io"
	"net"
	"sync"
)

// relay passes TCP connections on to a server until it is cut: the link between a primary and its
// replica. Bytes that have not arrived by then never do.
type relay struct {
	addr   string
	ln     net.Listener
	target string

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
	wg    sync.WaitGroup
}

func newRelay(target string) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{addr: ln.Addr().String(), ln: ln, target: target}
	r.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(c) })
		}
	})
	return r, nil
}

func (r *relay) serve(from net.Conn) {
	to, err := net.Dial("tcp", r.target)
	if err != nil || !r.add(from, to) {
		_ = from.Close()
		return
	}
	r.wg.Go(func() { r.copy(from, to) })
	r.copy(to, from)
}

func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, conns...)
	return true
}

// copy carries one direction. After a cut it drops all bytes.
func (r *relay) copy(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		lost := r.isCut
		r.mu.Unlock()
		if n > 0 && !lost {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			if err != io.EOF || !lost { // an end of a cut connection is not passed on
				_ = from.Close()
				_ = to.Close()
			}
			return
		}
	}
}

// cut drops all bytes from now on. The connections stay open.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = true
}

func (r *relay) close() {
	_ = r.ln.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
