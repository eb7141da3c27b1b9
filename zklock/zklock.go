package zklock

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Config says where the locks are, and how to connect.
type Config struct {
	// Servers are host:port, or host for port 2181; IPv6 addresses are in brackets. All belong to
	// one ensemble.
	Servers []string

	// Root is the path below which the locks are; "" is "/holdfast", "/" the top. The lock
	// "orders/42" under "/locks" is the path /locks/orders/42, for Curator as well.
	Root string

	// Session is the session timeout to ask for. The servers bound it, by default to 2 to 20 of
	// their ticks of 2 s. 0: the client's TTL. A dead client's locks are free when its session has
	// expired. A living client trusts a lease for 3/5 of the timeout; see the package's
	// documentation.
	Session time.Duration

	// Protocol is how the store keeps locks; Ordered if zero. All clients must use the same.
	Protocol Protocol

	// TLS, if set, is used for every connection. With an empty ServerName each server's own name is
	// checked.
	TLS *tls.Config

	// User and Password are the digest credentials that the client presents.
	User, Password string

	// Access is who may read and change the nodes that the client creates; Everybody if zero. The
	// other values need a User.
	Access Access

	// Dialer, if set, opens the connections.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// Access is who may read and change nodes.
type Access uint8

// The values of Access.
const (
	// Everybody may read and change all nodes, as with Curator's defaults.
	Everybody Access = iota

	// Readable lets everybody read, and lets clients with the same credentials take locks.
	Readable

	// Private lets only clients with the same credentials read and take locks.
	Private
)

// Protocol is how a lock is kept.
type Protocol uint8

// The protocols.
const (
	// Ordered keeps a queue of nodes for each name, as Apache Curator does, and has all kinds of
	// locks.
	Ordered Protocol = iota

	// Single keeps one node for each name. It needs fewer requests while nobody waits. It has
	// mutexes only, and no order among waiters: each release wakes them all.
	Single
)

// Backend is a lock table in ZooKeeper. Use New.
type Backend struct {
	cfg  zk.Config
	root string // "" is the top
	want time.Duration
	idle time.Duration // the timeout of a session that holds nothing
	acl  []zk.ACL      // of nodes that every client may change

	readers []zk.ACL // who may read a contender's node, which only its session may change
	mode    Protocol

	mu     sync.Mutex
	closed bool
	ops    *link // the session of the operators' methods
	client *link // the session that Open has returned last; it may be over
	probed bool  // whether cfg.Old is known
}

var _ driver.Backend = (*Backend)(nil)

// New returns the lock table that cfg names. It opens no connection. The error is driver.ErrInvalid
// and says what is wrong with cfg.
func New(cfg Config) (*Backend, error) {
	b := &Backend{
		want: cfg.Session, idle: operatorTimeout, mode: cfg.Protocol,
		cfg: zk.Config{Servers: cfg.Servers, TLS: cfg.TLS, Dialer: cfg.Dialer, Timeout: cfg.Session, MaxPacket: maxAnswer},
		acl: zk.WorldACL(zk.PermAll), readers: zk.WorldACL(zk.PermRead),
	}
	switch {
	case cfg.Session < 0 || cfg.Session > driver.MaxTTL:
		return nil, invalid("session timeout %v: allowed are 0 (for the client's TTL) to %v", cfg.Session, driver.MaxTTL)
	case cfg.Protocol > Single:
		return nil, invalid("protocol %d: allowed are Ordered and Single", cfg.Protocol)
	case cfg.Access > Private:
		return nil, invalid("access %d: allowed are Everybody, Readable and Private", cfg.Access)
	case cfg.User == "" && (cfg.Password != "" || cfg.Access != Everybody):
		return nil, invalid("Config: Password, and an Access other than Everybody, need a User")
	case strings.Contains(cfg.User, ":"):
		return nil, invalid("user: it must not contain a colon")
	}
	if cfg.User != "" {
		b.cfg.Auth = []zk.Auth{zk.DigestAuth(cfg.User, cfg.Password)}
	}
	switch cfg.Access {
	case Readable:
		b.acl = append(zk.DigestACL(zk.PermAll, cfg.User, cfg.Password), b.readers...)
	case Private:
		b.acl = zk.DigestACL(zk.PermAll, cfg.User, cfg.Password)
		b.readers = zk.DigestACL(zk.PermRead, cfg.User, cfg.Password)
	}
	switch b.root = cfg.Root; b.root {
	case "":
		b.root = "/holdfast"
	case "/":
		b.root = ""
	}
	if err := checkRoot(b.root); err != nil {
		return nil, err
	}
	if err := b.cfg.Check(); err != nil {
		return nil, invalid("%w", err)
	}
	return b, nil
}

// maxAnswer bounds an answer. It is enough for half a million children in a folder. Requests stay
// far below what servers accept.
const maxAnswer = 32 << 20

func checkRoot(root string) error {
	if root == "" {
		return nil
	}
	for i, level := range strings.Split(root, "/") {
		if i == 0 && level == "" {
			continue
		}
		if i == 0 || level == "" || level == "." || level == ".." || i == 1 && level == "zookeeper" ||
			strings.ContainsFunc(level, func(r rune) bool { return r != '%' && !allowed(r) }) {
			return invalid("root %q: it must be a path such as /app/locks, not below /zookeeper", root)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("zookeeper: %w "+format, append([]any{driver.ErrInvalid}, args...)...)
}

// Name returns "zookeeper".
func (b *Backend) Name() string { return "zookeeper" }

// Kinds returns everything, or mutexes only with protocol Single.
func (b *Backend) Kinds() driver.Kinds {
	if b.mode == Single {
		return driver.Kinds{Setting: "protocol=single"}
	}
	all := driver.AllKinds()
	all.Leases = false // the servers end a grant with its session, or the client does
	all.Blocks = false // a token is the ID of the write that made the grant
	all.CallBack = false
	return all
}

// Open starts a ZooKeeper session.
func (b *Backend) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	timeout := b.want
	if timeout == 0 {
		timeout = cfg.TTL
	}
	l, err := b.dial(ctx, timeout)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.client = l
	b.mu.Unlock()
	if b.mode == Single {
		return newSingle(b, l), nil
	}
	return newSession(b, l), nil
}

func (b *Backend) dial(ctx context.Context, timeout time.Duration) (*link, error) {
	b.mu.Lock()
	closed, probed, cfg := b.closed, b.probed, b.cfg
	b.mu.Unlock()
	if closed {
		return nil, driver.ErrClosed
	}
	cfg.Timeout = timeout
	plain := cfg.Auth
	secret := rand.Text() // an identity that nobody else has; digest needs no registration
	cfg.Auth = append(slices.Clone(plain), zk.DigestAuth(sealUser, secret))
	s, err := zk.Dial(ctx, cfg)
	sealed := append(zk.DigestACL(zk.PermWrite, sealUser, secret), b.readers...)
	if errors.Is(err, zk.ErrAuthFailed) { // digest is switched off: nodes cannot be sealed
		cfg.Auth, sealed = plain, nil
		s, err = zk.Dial(ctx, cfg)
	}
	if err != nil && !errors.Is(err, zk.ErrAuthFailed) { // no request was sent
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if err != nil {
		return nil, explain(err)
	}
	l := &link{Session: s, b: b, sealedACL: sealed}
	if sealed == nil {
		l.sealedACL = b.acl
		l.aclTest.state.Store(aclIgnored)
	}
	if !probed {
		old, err := s.Probe(ctx)
		if err != nil {
			closeUnused(l)
			return nil, explain(err)
		}
		b.mu.Lock()
		b.probed, b.cfg.Old = true, old
		b.mu.Unlock()
	}
	return l, nil
}

// operator returns the session that the operators' methods share. It opens the session at the first
// use, and again after a loss.
func (b *Backend) operator(ctx context.Context) (*link, error) {
	b.mu.Lock()
	l := b.ops
	b.mu.Unlock()
	if l != nil && l.Err() == nil {
		return l, nil
	}
	limited, cancel := context.WithTimeout(ctx, b.idle) // the servers may never answer
	defer cancel()
	fresh, err := b.dial(limited, b.idle)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.ops != l { // another goroutine was faster
		go closeUnused(fresh)
		if b.closed {
			return nil, driver.ErrClosed
		}
		return b.ops, nil
	}
	b.ops = fresh
	return fresh, nil
}

// operatorTimeout is Backend.idle, except in tests.
const operatorTimeout = 10 * time.Second

// closeUnused ends a session that holds nothing.
func closeUnused(l *link) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx) // if no server gets the request, the session expires
}

// Close ends the session of the operators' methods. The sessions that Open returned continue.
func (b *Backend) Close() error {
	b.mu.Lock()
	l := b.ops
	b.closed, b.ops = true, nil
	b.mu.Unlock()
	if l != nil {
		closeUnused(l)
	}
	return nil
}

// explain wraps an error of package zk in the error of package driver that it means.
func explain(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range []error{driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrUnavailable, driver.ErrUncertain,
		driver.ErrRefused, driver.ErrDamaged, driver.ErrInvalid, driver.ErrClosed} {
		if errors.Is(err, e) {
			return err
		}
	}
	sentinel := driver.ErrUncertain
	switch {
	case errors.Is(err, zk.ErrSessionExpired), errors.Is(err, zk.ErrClosed):
		sentinel = driver.ErrClosed
	case errors.Is(err, zk.ErrNoAuth):
		sentinel = driver.Denied(driver.ErrRefused)
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL),
		errors.Is(err, zk.ErrEphemeralParent), errors.Is(err, zk.ErrTooLarge):
		sentinel = driver.ErrRefused
	case errors.Is(err, zk.ErrNotSent):
		sentinel = driver.ErrUnavailable
	case errors.Is(err, zk.ErrConnectionLoss):
	default: // a server reported that it did nothing
		if code := zk.Code(0); errors.As(err, &code) {
			sentinel = driver.ErrUnavailable
		}
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}
