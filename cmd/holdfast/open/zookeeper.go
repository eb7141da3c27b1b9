package open

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock"
)

// openZooKeeper opens the lock table of an ensemble. It connects to nothing yet: sessions do.
func openZooKeeper(rawURL string) (*Store, error) {
	cfg, err := zooKeeperConfig(rawURL)
	if err != nil {
		return nil, err
	}
	b, err := zklock.New(cfg)
	if err != nil {
		return nil, classify(err, driver.ErrInvalid)
	}
	return &Store{b, zooKeeperPlace(cfg)}, nil
}

// defaultRoot is where the locks are if the URL does not say; zklock has the same.
const defaultRoot = "/holdfast"

// zooKeeperAllowed has no @ after a ://, where passwords are masked.
const zooKeeperAllowed = "allowed are zookeeper://HOST[:PORT][,HOST...][/ROOT], USER:PASSWORD@ before the hosts, and the " +
	"parameters session=DURATION, protocol=ordered or single, acl=private; with zookeepers:// also ca, cert, key, servername"

// invalidZooKeeper is an error that quotes nothing of the URL but what it is told to.
func invalidZooKeeper(format string, args ...any) error {
	return fmt.Errorf("%w zookeeper URL: %s; %s", driver.ErrInvalid, fmt.Sprintf(format, args...), zooKeeperAllowed)
}

// zooKeeperConfig reads a URL. The errors of package url quote it, so they are not passed on.
func zooKeeperConfig(rawURL string) (cfg zklock.Config, err error) {
	scheme, _, ok := strings.Cut(rawURL, "://")
	scheme = strings.ToLower(scheme)
	if !ok || !slices.Contains([]string{"zookeeper", "zk", "zookeepers", "zks"}, scheme) {
		return cfg, invalidZooKeeper("it has no // after the scheme")
	}
	_, _, after := cutHosts(rawURL)
	if strings.Contains(after, "@") {
		// What is behind it may be a part of the password, so nothing is said about that.
		return cfg, invalidZooKeeper("there is an @ after the servers; / ? # in a password and @ elsewhere must be percent-encoded (%%2F %%3F %%23 %%40)")
	}
	u, err := parseAround(rawURL)
	if err != nil {
		return cfg, invalidZooKeeper("it cannot be parsed (a special character in the password must be percent-encoded)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		return cfg, invalidZooKeeper("its query cannot be parsed")
	case strings.Contains(u.EscapedPath(), ","):
		return cfg, invalidZooKeeper("there is a comma in the root, which follows the last server (%%2C if it is part of it)")
	case strings.Contains(after, "#"):
		return cfg, invalidZooKeeper("it has a fragment; # must be percent-encoded (%%23)")
	}
	if u.User != nil {
		cfg.User = u.User.Username()
		cfg.Password, _ = u.User.Password()
		switch {
		case cfg.User == "":
			return cfg, invalidZooKeeper("it has an @ and no user before it")
		case strings.Contains(cfg.User, ":"):
			return cfg, invalidZooKeeper("ZooKeeper allows no colon in a user's name")
		}
	}
	if cfg.Servers, err = servers(u.Host); err != nil {
		return cfg, err
	}
	switch cfg.Root = u.Path; cfg.Root {
	case "", "/": // a slash at the end is not another place
		cfg.Root = defaultRoot
	case "//":
		cfg.Root = "/"
	}
	if err := settings(&cfg, query); err != nil {
		return cfg, err
	}
	if scheme == "zookeepers" || scheme == "zks" {
		if cfg.TLS, err = zooKeeperTLS(query); err != nil {
			return cfg, err
		}
	}
	for _, k := range []string{"ca", "cert", "key", "servername"} {
		if query.Has(k) && cfg.TLS == nil {
			return cfg, invalidZooKeeper("the parameter %s is for zookeepers://", k)
		}
	}
	return cfg, nil
}

// settings reads the parameters that are not about TLS, and refuses those that nobody knows.
func settings(cfg *zklock.Config, query url.Values) error {
	known := []string{"session", "protocol", "acl", "ca", "cert", "key", "servername"}
	for k, v := range query {
		switch {
		case !slices.Contains(known, k):
			return invalidZooKeeper("the parameter %q is unknown", k)
		case len(v) != 1 || v[0] == "":
			return invalidZooKeeper("the parameter %s is empty or given twice", k)
		}
	}
	if s := query.Get("session"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < driver.MinTTL || d > driver.MaxTTL {
			return invalidZooKeeper("session=%s: it must be a time with its unit, such as 10s, from %v to %v", s, driver.MinTTL, driver.MaxTTL)
		}
		cfg.Session = d
	}
	switch p := query.Get("protocol"); p {
	case "", "ordered":
	case "single":
		cfg.Protocol = zklock.Single
	default:
		return invalidZooKeeper("protocol=%s: it must be ordered or single", p)
	}
	switch a := query.Get("acl"); {
	case a != "" && a != "private":
		return invalidZooKeeper("acl=%s: it must be private, or left out, which lets everybody in", a)
	case a == "private" && cfg.User == "":
		return invalidZooKeeper("acl=private needs USER:PASSWORD@")
	case a == "private":
		cfg.Private = true
	}
	return nil
}

// servers are the HOST[:PORT] of a URL, all with a port.
func servers(hosts string) ([]string, error) {
	var all []string
	for i, h := range strings.Split(hosts, ",") {
		addr, err := server(h)
		if err != nil {
			return nil, invalidZooKeeper("server %d: %v", i+1, err)
		}
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all, nil
}

const zooKeeperPort = "2181"

// server is one HOST[:PORT] in the form that all its spellings have. Its errors do not quote it: in a URL
// that lacks its @, this is the password.
func server(hostport string) (string, error) {
	host, port := hostport, zooKeeperPort
	if rest, ok := strings.CutPrefix(hostport, "["); ok {
		inside, after, closed := strings.Cut(rest, "]")
		ip, err := netip.ParseAddr(strings.Replace(inside, "%25", "%", 1))
		if !closed || err != nil || !ip.Is6() || after != "" && after[0] != ':' {
			return "", fmt.Errorf("brackets are for an IPv6 address, as in [::1]:2181")
		}
		if host = ip.String(); after != "" {
			port = after[1:]
		}
	} else {
		name, p, ok := strings.Cut(hostport, ":")
		if host = strings.ToLower(name); ok {
			port = p
		}
		switch {
		case strings.Contains(port, ":"):
			return "", fmt.Errorf("it has two colons; an IPv6 address stands in brackets, as in [::1]:2181")
		case host == "":
			return "", fmt.Errorf("there is no host")
		case strings.ContainsFunc(host, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
		}):
			return "", fmt.Errorf("a host's name has letters, digits, dots and hyphens")
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// zooKeeperPlace names the lock table, whatever the order in which its servers are listed.
func zooKeeperPlace(cfg zklock.Config) string {
	place := "zookeeper:" + strings.Join(slices.Sorted(slices.Values(cfg.Servers)), ",") + cfg.Root
	if cfg.Protocol == zklock.Single { // another way to keep locks: they do not see each other
		place += "#single"
	}
	return place
}

// zooKeeperTLS reads the files that the parameters name. An empty ServerName means each server's own.
func zooKeeperTLS(query url.Values) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: query.Get("servername")}
	if file := query.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, invalidZooKeeper("ca: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalidZooKeeper("ca: no certificate in %s", file)
		}
	}
	cert, key := query.Get("cert"), query.Get("key")
	if (cert == "") != (key == "") {
		return nil, invalidZooKeeper("cert and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, invalidZooKeeper("cert and key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
