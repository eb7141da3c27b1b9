package zk

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Reply is one server's answer to a four-letter word.
type Reply struct {
	Server string // host:port
	Text   string // "" if it closed the connection, as it does for a word that it does not know
	Err    error
}

// Word sends a four-letter word ("srvr", "conf", "mntr") to each server of cfg; it needs no
// session. It returns the answers in the order of cfg.Servers: one for each address of a name, each
// address once. Servers refuse words that are not in their whitelist. Word ends when ctx ends.
func Word(ctx context.Context, cfg Config, word string) ([]Reply, error) {
	cfg, err := cfg.normalize()
	if err != nil {
		return nil, err
	}
	var all []Reply
	var targets []server
	asked := map[string]bool{}
	for _, hostport := range cfg.Servers {
		host, port, err := net.SplitHostPort(hostport)
		if err != nil {
			return nil, err
		}
		addrs := []string{hostport}
		if cfg.Dialer == nil && net.ParseIP(host) == nil {
			ips, err := net.DefaultResolver.LookupHost(ctx, host)
			if err != nil {
				all = append(all, Reply{Server: hostport, Err: err})
				continue
			}
			addrs = addrs[:0]
			for _, ip := range ips {
				addrs = append(addrs, net.JoinHostPort(ip, port))
			}
		}
		for _, addr := range addrs {
			if !asked[addr] {
				asked[addr] = true
				targets = append(targets, server{addr, host})
			}
		}
	}
	replies := make([]Reply, len(targets))
	var wg sync.WaitGroup
	for i, srv := range targets { // in parallel, so that a server that hangs delays no other
		wg.Go(func() {
			r := Reply{Server: srv.addr}
			r.Text, r.Err = (&Session{cfg: cfg}).word(ctx, srv, word)
			replies[i] = r
		})
	}
	wg.Wait()
	return append(all, replies...), nil
}

func (s *Session) word(ctx context.Context, srv server, word string) (string, error) {
	nc, err := s.open(ctx, srv)
	if err != nil {
		return "", err
	}
	defer func() { _ = nc.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	if _, err := io.WriteString(nc, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(nc, 1<<20))
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = fmt.Errorf("no answer to %s: %w", word, cause)
	}
	return string(b), err
}
