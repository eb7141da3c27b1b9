// Package storeurl parses the URLs of stores with servers, and masks passwords in them. Errors of
// package url quote the URL. Those of Parse, ParseHosts, Hosts and HostPort do not: if a URL lacks
// its @ or has a special character, any part of it may belong to the password.
package storeurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Parse is url.Parse and url.ParseQuery, for a URL as in ParseHosts and without a fragment.
func Parse(rawURL string) (*url.URL, url.Values, error) {
	u, err := ParseHosts(rawURL)
	if err != nil {
		return nil, nil, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New("its query cannot be parsed")
	}
	if strings.Contains(rawURL, "#") {
		return nil, nil, errors.New("it has a fragment; # must be percent-encoded (%23)")
	}
	return u, query, nil
}

// ParseHosts is url.Parse for a URL with //. It does not parse the hosts, which may be a list: Host
// has them as written.
func ParseHosts(rawURL string) (*url.URL, error) {
	scheme, _, ok := strings.Cut(rawURL, "://")
	if !ok || scheme == "" || strings.ContainsAny(scheme, ":/?#@") {
		return nil, errors.New("it has no // after the scheme")
	}
	before, hosts, after := CutHosts(rawURL)
	u, err := url.Parse(before + "host" + after)
	if err != nil {
		return nil, errors.New("it cannot be parsed (a special character in the password must be percent-encoded)")
	}
	u.Host = hosts
	return u, nil
}

// CutHosts splits rawURL into the hosts, which are after the // or the user and before the path,
// and the text before and after them. Without a // there are no hosts.
func CutHosts(rawURL string) (before, hosts, after string) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return rawURL, "", ""
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest, after = rest[:i], rest[i:]
	}
	at := strings.LastIndexByte(rest, '@') + 1
	return scheme + "://" + rest[:at], rest[at:], after
}

// AtAfterHosts returns an error if rawURL has an @ after its hosts, because of an unescaped / ? or # in
// the password. Any part of such a URL may belong to the password, so errors must not quote it.
func AtAfterHosts(rawURL string) error {
	if _, _, after := CutHosts(rawURL); strings.Contains(after, "@") {
		return errors.New("there is an @ after the servers; / ? # in a password and @ elsewhere must be percent-encoded (%2F %3F %23 %40)")
	}
	return nil
}

// Hosts returns the servers of a list HOST[:PORT][,HOST[:PORT]...] as HostPort does, each once.
func Hosts(list, defaultPort string) ([]string, error) {
	var all []string
	for i, h := range strings.Split(list, ",") {
		addr, err := HostPort(h, defaultPort)
		if err != nil {
			return nil, fmt.Errorf("server %d: %w", i+1, err)
		}
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all, nil
}

// HostPort returns one HOST[:PORT] in a normal form: in lower case and with a port.
func HostPort(hostport, defaultPort string) (string, error) {
	host, port := hostport, defaultPort
	if rest, ok := strings.CutPrefix(hostport, "["); ok {
		inside, after, closed := strings.Cut(rest, "]")
		ip, err := netip.ParseAddr(strings.Replace(inside, "%25", "%", 1))
		if !closed || err != nil || !ip.Is6() || after != "" && after[0] != ':' {
			return "", fmt.Errorf("brackets are for an IPv6 address, as in [::1]:%s", defaultPort)
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
			return "", fmt.Errorf("it has two colons; an IPv6 address needs brackets, as in [::1]:%s", defaultPort)
		case host == "":
			return "", errors.New("there is no host")
		case strings.ContainsFunc(host, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
		}):
			return "", errors.New("invalid host name: allowed are letters, digits, dots, hyphens and underscores")
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// TLSParameters are the parameters that TLSConfig reads.
var TLSParameters = []string{"ca", "cert", "key", "servername"}

// TLSConfig reads the files that the parameters name. An empty ServerName means the name of each
// server. Its errors quote the names of the files.
func TLSConfig(query url.Values) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: query.Get("servername")}
	if file := query.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: no certificate in %s", file)
		}
	}
	cert, key := query.Get("cert"), query.Get("key")
	if (cert == "") != (key == "") {
		return nil, errors.New("cert and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Mask stands in place of a password.
const Mask = "***"

// Masked returns a URL as an error may show it, with every possible password masked. That is
// everything between the user and the last @; a port that is no number, because the @ may be
// missing; and parameters that are not harmless. It returns "" if even the hosts cannot be found.
func Masked(rawURL string, harmless []string) string {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return ""
	}
	user := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user = Mask + "@" // perhaps a password without its colon
		if name, _, given := strings.Cut(rest[:at], ":"); given {
			user = name + ":" + Mask + "@"
		}
		rest = rest[at+1:]
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, asked := strings.Cut(rest, "?")
	hosts, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		hosts, path = rest[:i], rest[i:]
	}
	list := strings.Split(hosts, ",")
	for i, h := range list {
		if c := strings.LastIndexByte(h, ':'); c >= 0 && strings.Trim(h[c+1:], "0123456789]") != "" && user == "" {
			list[i] = h[:c+1] + Mask
			path, asked = "", false // it may belong to the password, too
		}
	}
	s := scheme + "://" + user + strings.Join(list, ",") + path
	if !asked {
		return s
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		key, _, _ := strings.Cut(p, "=")
		if !slices.Contains(harmless, key) {
			params[i] = key + "=" + Mask
		}
	}
	return s + "?" + strings.Join(params, "&")
}
