package zk

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout is the session timeout to ask for if Config.Timeout is zero.
const DefaultTimeout = 10 * time.Second

// DefaultMaxPacket is the default of Config.MaxPacket, and of servers' jute.maxbuffer.
const DefaultMaxPacket = 1 << 20

// Config says how to connect to the servers, and with which credentials. Dial does not change it.
type Config struct {
	// Servers are host:port, or host for port 2181; IPv6 addresses are in brackets. Names are
	// resolved again for every connection, and each of their addresses is a server.
	Servers []string

	// Timeout is the session timeout to ask for; the servers bound it. See Session.Timeout.
	Timeout time.Duration

	// TLS, if set, is used for every connection. With an empty ServerName each server's own name is
	// checked.
	TLS *tls.Config

	// Auth is sent on every connection before any request.
	Auth []Auth

	// Dialer, if set, opens the connections. It gets the servers as configured and must resolve
	// names. It should return when its context ends.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)

	// MaxPacket bounds packets, in bytes. Servers refuse requests larger than their jute.maxbuffer,
	// but may send larger answers, such as a list of many children. 0: DefaultMaxPacket.
	MaxPacket int

	// Old means that the servers are older than 3.5 (see Session.Probe). The session then sends no
	// newer requests, on which such servers close the connection.
	Old bool

	slept func() time.Duration // how long the machine has slept, for tests
}

// Auth is a credential: a scheme and its data.
type Auth struct {
	Scheme string
	Data   []byte
}

// DigestAuth returns the credential of a user of the digest scheme.
func DigestAuth(user, password string) Auth {
	return Auth{"digest", []byte(user + ":" + password)}
}

// Permissions of an ACL.
const (
	PermRead int32 = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	PermAll = PermRead | PermWrite | PermCreate | PermDelete | PermAdmin
)

// ACL gives permissions to an identity.
type ACL struct {
	Perms      int32
	Scheme, ID string
}

// WorldACL gives perms to everybody.
func WorldACL(perms int32) []ACL { return []ACL{{perms, "world", "anyone"}} }

// DigestACL gives perms to a user of the digest scheme.
func DigestACL(perms int32, user, password string) []ACL {
	sum := sha1.Sum([]byte(user + ":" + password))
	return []ACL{{perms, "digest", user + ":" + base64.StdEncoding.EncodeToString(sum[:])}}
}

// Check returns what is wrong with c, or nil.
func (c Config) Check() error {
	_, err := c.normalize()
	return err
}

// normalize checks c and fills in defaults.
func (c Config) normalize() (Config, error) {
	if len(c.Servers) == 0 {
		return c, fmt.Errorf("zk: no servers: %w", ErrBadArguments)
	}
	c.Servers = slices.Clone(c.Servers)
	for i, s := range c.Servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			s = net.JoinHostPort(strings.Trim(s, "[]"), "2181")
		}
		host, port, err := net.SplitHostPort(s)
		n, perr := strconv.ParseUint(port, 10, 16)
		_, aerr := netip.ParseAddr(host)
		if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsAny(host, " /[]:") && aerr != nil {
			return c, fmt.Errorf("zk: server %q: %w", c.Servers[i], ErrBadArguments)
		}
		c.Servers[i] = s
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Timeout < time.Millisecond || c.Timeout > 1<<31*time.Millisecond-time.Millisecond {
		return c, fmt.Errorf("zk: timeout %v: %w", c.Timeout, ErrBadArguments)
	}
	if c.MaxPacket == 0 {
		c.MaxPacket = DefaultMaxPacket
	}
	if c.MaxPacket < 1024 || c.MaxPacket > 1<<30 {
		return c, fmt.Errorf("zk: packets of %d bytes: %w", c.MaxPacket, ErrBadArguments)
	}
	return c, nil
}

// checkPath refuses paths that the servers would misread or reject. Whether a name is a good choice
// is up to the caller.
func checkPath(p string) error {
	if p == "/" {
		return nil
	}
	if !strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") || strings.Contains(p, "//") || strings.ContainsRune(p, 0) {
		return fmt.Errorf("path %q: %w", p, ErrBadArguments)
	}
	return nil
}
