package rueidisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// What Dial's connections wait for at most. A frozen server must not hang anybody.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
	pingEvery   = time.Second
)

// Dial connects to the server that a URL names. Close closes the connection.
//
//	redis://[user:password@]host[:port][/db]
//	rediss://…            the same over TLS, the certificate checked against the system's roots
//	unix:///path?db=0     or redis+unix: a socket; [user:password@] may stand before the path
//
// Options of rediss, as query parameters: ca, a PEM file of roots to trust instead; cert and
// key, PEM files of a client certificate; servername, the name to expect in the server's
// certificate if it is not the host.
//
// Errors: ErrInvalid if the URL or a file it names makes no sense, ErrRefused if the
// server does not accept the credentials or either side the other's certificate,
// ErrUnavailable or ErrUncertain if it cannot be reached. No error shows a password.
func Dial(rawURL string) (redislock.Conn, error) {
	opt, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, fmt.Errorf("redis %s: %w", opt.InitAddress[0], (&conn{}).wrap(err))
	}
	return newConn(client, true), nil
}

const allowed = "allowed are redis://[user:password@]host[:port][/db], rediss:// with ca, cert, key, servername, and unix:///path?db=N"

// invalid is an error that quotes nothing of the URL but what it is told to.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w redis URL: %s; %s", driver.ErrInvalid, fmt.Sprintf(format, args...), allowed)
}

// parse reads a URL. The errors of package url quote it, so they are not passed on.
func parse(raw string) (rueidis.ClientOption, error) {
	opt := rueidis.ClientOption{
		Dialer:            net.Dialer{Timeout: dialTimeout, KeepAlive: pingEvery},
		ConnWriteTimeout:  ioTimeout,
		ForceSingleClient: true,
		DisableRetry:      true, // package holdfast asks again itself
		DisableCache:      true,
		// One connection keeps a cancellation behind the request that it cancels.
		PipelineMultiplex:   -1,
		ReadBufferEachConn:  64 << 10,
		WriteBufferEachConn: 64 << 10,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
	}
	u, err := url.Parse(raw)
	if err != nil {
		return opt, invalid("it cannot be parsed (a special character in the password must be percent-encoded)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return opt, invalid("its query cannot be parsed")
	}
	switch {
	case u.Fragment != "" || u.Opaque != "":
		return opt, invalid("it has a fragment, or no // after the scheme")
	case u.User != nil:
		opt.Username = u.User.Username()
		opt.Password, _ = u.User.Password()
	}
	known := map[string]bool{}
	db := ""
	switch u.Scheme {
	case "unix", "redis+unix":
		known["db"] = true
		if u.Host != "" || u.Path == "" {
			return opt, invalid("the socket's path must be absolute and follow the third slash")
		}
		opt.InitAddress = []string{u.Path}
		opt.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
		db = query.Get("db")
	case "redis", "rediss":
		if u.Hostname() == "" {
			return opt, invalid("it names no host")
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return opt, invalid("the port is not a number from 1 to 65535")
		}
		opt.InitAddress = []string{net.JoinHostPort(u.Hostname(), port)}
		db = strings.Trim(u.Path, "/")
		if u.Scheme == "rediss" {
			known["ca"], known["cert"], known["key"], known["servername"] = true, true, true, true
			if opt.TLSConfig, err = tlsConfig(u.Hostname(), query); err != nil {
				return opt, err
			}
		}
	default:
		return opt, invalid("scheme %q", u.Scheme)
	}
	for k, v := range query {
		if !known[k] || len(v) != 1 {
			return opt, invalid("the parameter %q is unknown or given twice", k)
		}
	}
	if db != "" {
		if opt.SelectDB, err = strconv.Atoi(db); err != nil || opt.SelectDB < 0 {
			return opt, invalid("the database is not a number")
		}
	}
	return opt, nil
}

func tlsConfig(host string, query url.Values) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if name := query.Get("servername"); name != "" {
		c.ServerName = name
	}
	if file := query.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, invalid("ca: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("ca: no certificate in %s", file)
		}
	}
	cert, key := query.Get("cert"), query.Get("key")
	if (cert == "") != (key == "") {
		return nil, invalid("cert and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, invalid("cert and key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
