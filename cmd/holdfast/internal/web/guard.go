// Package web stands between a network and the handlers of "holdfast serve": which host a request
// names, who sends it, and how many connections there are. It knows no lock.
package web

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Guard passes a request on if it names this server and, if there are users, comes from one of them.
type Guard struct {
	Users *Users       // nil: anybody
	Hosts []string     // names of this server besides localhost and every IP address
	Next  http.Handler // what it guards
}

// bodyLimit is how long the body of a request may take to arrive.
const bodyLimit = 10 * time.Second

type userKey struct{}

// User returns the user whose request this is; "" if nobody was asked.
func User(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

// ServeHTTP implements http.Handler.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		// The server reads a body before it sends an answer, also one that refuses the request. What Next
		// has read in time may take longer to answer: it sets another deadline.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyLimit))
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	switch {
	case !g.named(r.Host):
		// A page of another site whose name leads to this address would else be a page of this one.
		http.Error(w, "This server is not known by that name; --host adds one.", http.StatusMisdirectedRequest)
		return
	case embedded(r):
		http.Error(w, "A browser sent this request for a page of another site.", http.StatusForbidden)
		return
	}
	if g.Users != nil {
		name, ok := g.Users.check(r)
		if !ok {
			h.Set("WWW-Authenticate", `Basic realm="holdfast", charset="UTF-8"`)
			http.Error(w, "A user and a secret are needed.", http.StatusUnauthorized)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, name))
	}
	g.Next.ServeHTTP(w, r)
}

// named reports whether host, with or without a port, is this server. An address is no name, so no
// other site can have it.
func (g *Guard) named(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if net.ParseIP(strings.Trim(host, "[]")) != nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(g.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// embedded reports whether a page of another site loads this as a part of it. Links from other sites
// are no parts.
func embedded(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// Limit returns a listener that has at most n connections. Others wait.
func Limit(l net.Listener, n int) net.Listener {
	return &limited{l, make(chan struct{}, n), make(chan struct{})}
}

type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &counted{Conn: c, l: l, open: make(chan struct{}, 1)}, nil
}

func (l *limited) Close() error {
	err := l.Listener.Close()
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return err
}

// counted gives its slot back once.
type counted struct {
	net.Conn
	l    *limited
	open chan struct{} // full when it was closed
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	select {
	case c.open <- struct{}{}:
		<-c.l.slots
	default:
	}
	return err
}
