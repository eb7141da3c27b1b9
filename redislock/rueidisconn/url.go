package rueidisconn

import (
	"context"
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

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
)

const allowed = "allowed are redis://[user:password@]host[:port][/db], unix:///path?db=N, " +
	"redis+sentinel://[user:password@]host[:port][,host...]/master[/db] with sentineluser, sentinelpassword, sentineltls=no, " +
	"redis+cluster://[user:password@]host[:port][,host...], and rediss://, rediss+sentinel://, rediss+cluster:// with ca, cert, key, servername; " +
	"in Open and on the command line replicas=N and replica-timeout=500ms as well"

// invalid returns an error that quotes nothing of the URL, except what its arguments have.
func invalid(format string, args ...any) error { return badURL{why: fmt.Sprintf(format, args...)} }

// badURL is the error of an invalid URL.
type badURL struct {
	shown string // the URL with possible passwords masked
	why   string
}

func (e badURL) Error() string {
	return fmt.Sprintf("%v redis URL%s: %s; %s", driver.ErrInvalid, e.shown, e.why, allowed)
}

func (e badURL) Unwrap() error { return driver.ErrInvalid }

// about adds the URL to err.
func about(raw string, err error) error {
	var bad badURL
	if !errors.As(err, &bad) || bad.shown != "" {
		return err
	}
	if s := shown(raw); s != "" {
		bad.shown = fmt.Sprintf(" %q", s)
	}
	return bad
}

const mask = "***"

// shown returns a URL as an error may show it, with every possible password masked. That is
// everything between the user and the last @; a port that is no number, because the @ may be
// missing; and parameters that are not known to be harmless. It returns "" if even the hosts cannot
// be found.
func shown(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return ""
	}
	user := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user = mask + "@" // perhaps a password without its colon
		if name, _, given := strings.Cut(rest[:at], ":"); given {
			user = name + ":" + mask + "@"
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
			list[i] = h[:c+1] + mask
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
			params[i] = key + "=" + mask
		}
	}
	return s + "?" + strings.Join(params, "&")
}

// harmless are the parameters without secrets.
var harmless = []string{"db", "sentineluser", "sentineltls", "ca", "cert", "key", "servername", "replicas",
	"replica-timeout"}

// parts are the parts of a URL. Package url does not know lists of hosts.
type parts struct {
	scheme string
	hosts  string // as written
	path   string
	user   *url.Userinfo
	query  url.Values
	known  []string // parameters that are allowed
}

// parse parses a URL. The errors of package url quote it, so they are not returned.
func parse(raw string) (rueidis.ClientOption, error) {
	opt, err := read(raw)
	return opt, about(raw, err)
}

func read(raw string) (rueidis.ClientOption, error) {
	opt := options()
	p, err := takeApart(raw)
	if err != nil {
		return opt, err
	}
	if p.user != nil {
		opt.Username = p.user.Username()
		opt.Password, _ = p.user.Password()
	}
	scheme, secure := p.scheme, false
	if rest, ok := strings.CutPrefix(scheme, "rediss"); ok {
		scheme, secure = "redis"+rest, true
	}
	switch scheme {
	case "unix", "redis+unix":
		err = p.socket(&opt)
	case "redis":
		err = p.server(&opt)
	case "redis+sentinel":
		err = p.sentinels(&opt)
	case "redis+cluster":
		err = p.cluster(&opt)
	default:
		err = invalid("scheme %q", p.scheme)
	}
	if secure && scheme == "redis+unix" {
		err = invalid("scheme %q", p.scheme)
	}
	if err != nil {
		return opt, err
	}
	if secure {
		err = p.tls(&opt)
	}
	for k, v := range p.query {
		if !slices.Contains(p.known, k) || len(v) != 1 {
			return opt, invalid("the parameter %q is unknown or given twice", k)
		}
	}
	return opt, err
}

// takeApart cuts a URL into its parts.
func takeApart(raw string) (p parts, err error) {
	bad := func(why string) (parts, error) { return parts{}, invalid("%s", why) }
	before, rest, ok := strings.Cut(raw, "://")
	if !ok || before == "" {
		return bad("it has no // after the scheme")
	}
	after := ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest, after = rest[:i], rest[i:]
	}
	at := strings.LastIndexByte(rest, '@') + 1
	p.hosts = rest[at:]
	if p.hosts != "" { // a host that package url accepts
		rest = rest[:at] + "host"
	}
	u, err := url.Parse(before + "://" + rest + after)
	if err != nil {
		return bad("it cannot be parsed (a special character in the password must be percent-encoded)")
	}
	if p.query, err = url.ParseQuery(u.RawQuery); err != nil {
		return bad("its query cannot be parsed")
	}
	if u.Fragment != "" || u.Opaque != "" || strings.Contains(after, "#") {
		return bad("it has a fragment (# in a password must be written %23)")
	}
	p.scheme, p.path, p.user = u.Scheme, u.Path, u.User
	return p, nil
}

func (p *parts) socket(opt *rueidis.ClientOption) error {
	p.known = []string{"db"}
	if p.hosts != "" || p.path == "" {
		return invalid("the socket's path must be absolute and follow the third slash")
	}
	opt.InitAddress = []string{p.path}
	opt.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "unix", path)
	}
	return database(opt, p.query.Get("db"))
}

func (p *parts) server(opt *rueidis.ClientOption) error {
	if strings.Contains(p.hosts, ",") {
		return invalid("several hosts are for redis+sentinel:// and redis+cluster://")
	}
	if err := p.addresses(opt, "6379"); err != nil {
		return err
	}
	return database(opt, strings.Trim(p.path, "/"))
}

func (p *parts) sentinels(opt *rueidis.ClientOption) error {
	p.known = []string{"sentineluser", "sentinelpassword"}
	if err := p.addresses(opt, "26379"); err != nil {
		return err
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(p.path, "/"), "/")
	if master == "" {
		return invalid("it does not name the master as the sentinels know it, as in redis+sentinel://host/mymaster")
	}
	opt.Sentinel = rueidis.SentinelOption{
		Dialer: opt.Dialer, MasterSet: master, TopologyRefreshInterval: askSentinels,
		Username: p.query.Get("sentineluser"), Password: p.query.Get("sentinelpassword"),
	}
	if opt.Sentinel.Username != "" && opt.Sentinel.Password == "" {
		return invalid("sentineluser needs sentinelpassword")
	}
	return database(opt, strings.TrimSuffix(db, "/"))
}

func (p *parts) cluster(opt *rueidis.ClientOption) error {
	if db := strings.Trim(p.path, "/"); strings.Trim(db, "0") != "" {
		return invalid("a Cluster has no database but 0, and nothing else may follow the hosts")
	}
	opt.ForceSingleClient = false
	opt.ClusterOption.MaxMovedRedirections = redirects
	return p.addresses(opt, "6379")
}

// addresses parses the list of hosts.
func (p *parts) addresses(opt *rueidis.ClientOption, port string) error {
	for i, h := range strings.Split(p.hosts, ",") {
		addr, err := address(h, port)
		if err != nil {
			return invalid("host %d: %v", i+1, err)
		}
		if !slices.Contains(opt.InitAddress, addr) {
			opt.InitAddress = append(opt.InitAddress, addr)
		}
	}
	return nil
}

// address returns HOST[:PORT] with a port. Its errors do not quote the host: in a URL without its @
// that is the password.
func address(hostport, defaultPort string) (string, error) {
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
		name, p, given := strings.Cut(hostport, ":")
		if host = name; given {
			port = p
		}
		switch {
		case strings.Contains(port, ":"):
			return "", fmt.Errorf("it has two colons; an IPv6 address stands in brackets, as in [::1]:%s", defaultPort)
		case host == "":
			return "", fmt.Errorf("there is none")
		case strings.ContainsFunc(host, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
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

func database(opt *rueidis.ClientOption, db string) (err error) {
	if db == "" {
		return nil
	}
	if opt.SelectDB, err = strconv.Atoi(db); err != nil || opt.SelectDB < 0 {
		return invalid("the database is not a number")
	}
	return nil
}

// tls reads the parameters for certificates. Without a servername each server's name is the dialled
// host.
func (p *parts) tls(opt *rueidis.ClientOption) error {
	p.known = append(p.known, "ca", "cert", "key", "servername")
	c, err := tlsConfig(p.query)
	if err != nil {
		return err
	}
	opt.TLSConfig = c
	if opt.Sentinel.MasterSet == "" {
		return nil
	}
	p.known = append(p.known, "sentineltls")
	switch v := p.query.Get("sentineltls"); v {
	case "":
		opt.Sentinel.TLSConfig = c
	case "no":
	default:
		return invalid("sentineltls=%s: it must be no, or left out", v)
	}
	return nil
}

func tlsConfig(query url.Values) (*tls.Config, error) {
	c := &tls.Config{ServerName: query.Get("servername"), MinVersion: tls.VersionTLS12}
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
