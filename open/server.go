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
)

// refusal makes the error of an invalid URL of one kind of store. It quotes only its arguments.
type refusal func(format string, args ...any) error

// serverURL parses the URL of a store with servers. It does not return the errors of package url,
// because they quote the URL.
func serverURL(rawURL string, invalid refusal, schemes ...string) (*url.URL, url.Values, error) {
	if scheme, _, ok := strings.Cut(rawURL, "://"); !ok || !slices.Contains(schemes, strings.ToLower(scheme)) {
		return nil, nil, invalid("it has no // after the scheme")
	}
	_, _, after := cutHosts(rawURL)
	if strings.Contains(after, "@") {
		// The error quotes nothing: the text after the @ may be part of the password.
		return nil, nil,
			invalid(
				"there is an @ after the servers; / ? # in a password and @ elsewhere must be percent-encoded (%%2F %%3F %%23 %%40)")
	}
	u, err := parseAround(rawURL)
	if err != nil {
		return nil, nil, invalid("it cannot be parsed (a special character in the password must be percent-encoded)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, invalid("its query cannot be parsed")
	}
	if strings.Contains(after, "#") {
		return nil, nil, invalid("it has a fragment; # must be percent-encoded (%%23)")
	}
	return u, query, nil
}

// hostPort returns one HOST[:PORT] in a normal form. Its errors do not quote it: in a URL that
// lacks its @, it may be the password.
func hostPort(hostport, defaultPort string) (string, error) {
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
			return "", fmt.Errorf("there is no host")
		case strings.ContainsFunc(host, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
		}):
			return "", fmt.Errorf("invalid host name: allowed are letters, digits, dots, hyphens and underscores")
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// tlsParameters are the parameters that tlsFiles reads.
var tlsParameters = []string{"ca", "cert", "key", "servername"}

// tlsFiles reads the files that the parameters name. An empty ServerName means the name of each
// server.
func tlsFiles(query url.Values, invalid refusal) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: query.Get("servername")}
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
