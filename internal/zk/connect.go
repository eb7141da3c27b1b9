package zk

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// server is one address to try.
type server struct{ addr, host string }

// connect tries servers until one accepts the session. Its error is why the session is over.
func (s *Session) connect(attempts *lastError) (*conn, error) {
	var absent time.Time // since when nothing listens; zero: something does
	for round, silent := 0, 0; ; round++ {
		if s.ctx.Err() != nil {
			return nil, s.Err()
		}
		began := time.Now()
		c, err := s.connectOnce(silent)
		if err == nil {
			return c, nil
		}
		if errors.Is(err, ErrSessionExpired) || errors.Is(err, ErrAuthFailed) {
			return nil, err
		}
		attempts.set(err)
		switch {
		case !nothingListens(err):
			absent = time.Time{}
		case absent.IsZero():
			absent = began
		case s.ID() == 0 && time.Since(absent) >= absenceLimit:
			return nil, err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			silent++
		}
		// This bounds how often servers are tried that refuse at once.
		pause := min(10*time.Millisecond<<min(round, 6), s.Timeout()/10)
		pause = pause/2 + rand.N(pause/2+1) - time.Since(began)
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
		}
	}
}

// absenceLimit is how long Dial tries when nothing listens: a server that is starting refuses
// connections for a moment. A session that has begun tries until it expires.
const absenceLimit = time.Second

// nothingListens reports whether err shows for every server that nothing listens there, or that the
// host does not exist.
func nothingListens(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(e error) bool { return !nothingListens(e) })
	}
	var lookup *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &lookup) && lookup.IsNotFound
}

// answerLimit returns how long one server may take to answer. It is short at first, so that a
// server that hangs costs little; a server that is starting may accept a connection and never
// answer. It grows with the number of rounds in which some servers were silent, as all may be slow.
func answerLimit(timeout time.Duration, silent int) time.Duration {
	return min(min(timeout/8, 2*time.Second)<<min(silent, 2), timeout/3)
}

// connectOnce tries each server once, in random order. silent is the number of earlier rounds in
// which some servers did not answer.
func (s *Session) connectOnce(silent int) (*conn, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	wait := answerLimit(s.Timeout(), silent)
	servers, err := s.resolve(ctx)
	if len(servers) == 0 {
		return nil, err
	}
	type result struct {
		nc  net.Conn
		err error
	}
	results := make(chan result, len(servers))
	started, open := 0, 0
	start := func() {
		if started == len(servers) {
			return
		}
		srv := servers[started]
		started++
		open++
		go func() {
			ctx, cancel := context.WithTimeout(ctx, answerLimit(s.Timeout(), 2))
			defer cancel()
			nc, err := s.open(ctx, srv)
			results <- result{nc, err}
		}()
	}
	// Dialing overlaps: if one server takes longer than a healthy one would, the next is tried.
	// Connect requests do not overlap: two servers would compete for the session.
	defer func() {
		cancel()
		go func(n int) {
			for range n {
				if r := <-results; r.nc != nil {
					_ = r.nc.Close()
				}
			}
		}(open)
	}()
	stagger := min(max(s.Timeout()/40, 10*time.Millisecond), 250*time.Millisecond)
	tick := time.NewTicker(stagger)
	defer tick.Stop()
	start()
	var errs []error
	for open > 0 {
		select {
		case r := <-results:
			open--
			if r.err == nil {
				var c *conn
				if c, r.err = s.handshake(r.nc, wait); r.err == nil {
					return c, nil
				}
				_ = r.nc.Close()
			}
			if errors.Is(r.err, ErrSessionExpired) || errors.Is(r.err, ErrAuthFailed) {
				return nil, r.err
			}
			errs = append(errs, r.err)
			start()
		case <-tick.C:
			start()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, joined(errs...)
}

// resolve returns the servers' addresses in random order. If a name cannot be resolved, resolve
// uses its last known addresses.
func (s *Session) resolve(ctx context.Context) ([]server, error) {
	ctx, cancel := context.WithTimeout(ctx, max(answerLimit(s.Timeout(), 0), 500*time.Millisecond))
	defer cancel()
	var all []server
	var errs []error
	for _, hostport := range s.cfg.Servers {
		host, port, err := net.SplitHostPort(hostport)
		if err != nil {
			return nil, err
		}
		if s.cfg.Dialer != nil || net.ParseIP(host) != nil {
			all = append(all, server{hostport, host})
			continue
		}
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			errs = append(errs, err)
			ips = s.known[host]
		}
		s.known[host] = ips
		for _, ip := range ips {
			all = append(all, server{net.JoinHostPort(ip, port), host})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, joined(errs...)
}

// open opens a connection.
func (s *Session) open(ctx context.Context, srv server) (net.Conn, error) {
	dial := s.cfg.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	nc, err := dial(ctx, "tcp", srv.addr)
	if err != nil || s.cfg.TLS == nil {
		return nc, err
	}
	cfg := s.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = srv.host
	}
	secure := tls.Client(nc, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("%s: %w", srv.addr, err)
	}
	return secure, nil
}

// handshake starts or resumes the session on nc, within limit.
func (s *Session) handshake(nc net.Conn, limit time.Duration) (*conn, error) {
	stop := context.AfterFunc(s.ctx, func() { _ = nc.Close() })
	defer stop()
	sent, proving := time.Now(), s.now()
	_ = nc.SetDeadline(sent.Add(limit)) // the calls below return the error
	s.mu.Lock()
	req := connectRequest{s.lastZxid, int32(s.cfg.Timeout / time.Millisecond), s.id, s.password}
	s.mu.Unlock()
	r := bufio.NewReader(nc)
	if _, err := nc.Write(req.packet()); err != nil {
		return nil, err
	}
	b, err := readPacket(r, 1024)
	if err != nil {
		return nil, fmt.Errorf("%v: no answer to the connect request: %w", nc.RemoteAddr(), err)
	}
	reply, err := decodeConnectReply(b)
	if err != nil {
		return nil, err
	}
	if reply.timeout <= 0 || reply.sessionID == 0 || req.sessionID != 0 && reply.sessionID != req.sessionID {
		return nil, ErrSessionExpired
	}
	answered := s.now()
	if err := s.authenticate(nc, r); err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Time{})
	c := &conn{s: s, nc: nc, r: r, dead: make(chan struct{}), lastRead: time.Now(), writing: true}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return nil, s.cause
	}
	s.id, s.password = reply.sessionID, reply.password
	s.timeout = time.Duration(reply.timeout) * time.Millisecond
	s.proof.connected(proving, answered)
	s.asked = sent
	if s.expiry == nil {
		s.expiry = time.AfterFunc(time.Until(sent.Add(s.timeout)), s.checkDeadline)
	} else {
		s.expiry.Reset(time.Until(sent.Add(s.timeout)))
	}
	s.conn = c
	first := s.watches.resume(s.lastZxid)
	c.wg.Go(func() { c.write(first) })
	c.wg.Go(c.read)
	return c, nil
}

// authenticate sends the credentials.
func (s *Session) authenticate(nc net.Conn, r *bufio.Reader) error {
	if len(s.cfg.Auth) == 0 {
		return nil
	}
	var all []byte
	for _, a := range s.cfg.Auth {
		all = append(all, authPacket(a)...)
	}
	if _, err := nc.Write(all); err != nil {
		return err
	}
	for range s.cfg.Auth {
		b, err := readPacket(r, 1024)
		if err != nil {
			return fmt.Errorf("no answer to the credentials: %w", err)
		}
		d := decoder{b: b}
		h := d.header()
		switch {
		case d.err != nil || h.xid != xidAuth:
			return errMalformed
		case h.code == ErrAuthFailed:
			return h.code
		case h.code != 0:
			return fmt.Errorf("authentication: %w", h.code)
		}
	}
	return nil
}
