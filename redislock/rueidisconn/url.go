package rueidisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

const allowed = "allowed are redis://[user:password@]host[:port][/db], unix:///path?db=N, " +
	"redis+sentinel://[user:password@]host[:port][,host...]/master[/db] with sentineluser, sentinelpassword, sentineltls=no, " +
	"redis+cluster://[user:password@]host[:port][,host...], and rediss://, rediss+sentinel://, rediss+cluster:// with ca, cert, key, servername; " +
	"in Open and on the command line replicas=N and replica-timeout=500ms as well"

// invalid returns the error of an invalid URL, which shows the URL with possible passwords masked.
func invalid(rawURL string, why error) error {
	shown := storeurl.Masked(rawURL, harmless)
	if shown != "" {
		shown = fmt.Sprintf(" %q", shown)
	}
	return fmt.Errorf("%w redis URL%s: %v; %s", driver.ErrInvalid, shown, why, allowed)
}

// harmless are the parameters without secrets.
var harmless = []string{"db", "sentineluser", "sentineltls", "ca", "cert", "key", "servername", "replicas",
	"replica-timeout"}

// parts are the parts of a URL.
type parts struct {
	*url.URL
	query url.Values
	known []string // parameters that are allowed
}

// parse returns the client's options for a URL.
func parse(rawURL string) (rueidis.ClientOption, error) {
	opt, err := read(rawURL)
	if err != nil {
		err = invalid(rawURL, cmp.Or(storeurl.AtAfterHosts(rawURL), err)) // a password with an @ may be valid
	}
	return opt, err
}

// read is parse, with errors that quote nothing of the URL but its scheme and parameters without
// secrets.
func read(rawURL string) (rueidis.ClientOption, error) {
	opt := options()
	u, query, err := storeurl.Parse(rawURL)
	if err != nil {
		return opt, err
	}
	p := parts{URL: u, query: query}
	if p.User != nil {
		opt.Username = p.User.Username()
		opt.Password, _ = p.User.Password()
	}
	scheme, secure := p.Scheme, false
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
		err = fmt.Errorf("scheme %q", p.Scheme)
	}
	if secure && scheme == "redis+unix" {
		err = fmt.Errorf("scheme %q", p.Scheme)
	}
	if err != nil {
		return opt, err
	}
	if secure {
		err = p.tls(&opt)
	}
	for k, v := range p.query {
		if !slices.Contains(p.known, k) || len(v) != 1 {
			return opt, fmt.Errorf("the parameter %q is unknown or given twice", k)
		}
	}
	return opt, err
}

func (p *parts) socket(opt *rueidis.ClientOption) error {
	p.known = []string{"db"}
	if p.Host != "" || p.Path == "" {
		return errors.New("the socket's path must be absolute and follow the third slash")
	}
	opt.InitAddress = []string{p.Path}
	opt.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "unix", path)
	}
	return database(opt, p.query.Get("db"))
}

func (p *parts) server(opt *rueidis.ClientOption) error {
	if strings.Contains(p.Host, ",") {
		return errors.New("several hosts are for redis+sentinel:// and redis+cluster://")
	}
	if err := p.addresses(opt, "6379"); err != nil {
		return err
	}
	return database(opt, strings.Trim(p.Path, "/"))
}

func (p *parts) sentinels(opt *rueidis.ClientOption) error {
	p.known = []string{"sentineluser", "sentinelpassword"}
	if err := p.addresses(opt, "26379"); err != nil {
		return err
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(p.Path, "/"), "/")
	if master == "" {
		return errors.New("it does not name the master as the sentinels know it, as in redis+sentinel://host/mymaster")
	}
	opt.Sentinel = rueidis.SentinelOption{
		Dialer: opt.Dialer, MasterSet: master, TopologyRefreshInterval: askSentinels,
		Username: p.query.Get("sentineluser"), Password: p.query.Get("sentinelpassword"),
	}
	if opt.Sentinel.Username != "" && opt.Sentinel.Password == "" {
		return errors.New("sentineluser needs sentinelpassword")
	}
	return database(opt, strings.TrimSuffix(db, "/"))
}

func (p *parts) cluster(opt *rueidis.ClientOption) error {
	if db := strings.Trim(p.Path, "/"); strings.Trim(db, "0") != "" {
		return errors.New("a Cluster has no database but 0, and nothing else may follow the hosts")
	}
	opt.ForceSingleClient = false
	opt.ClusterOption.MaxMovedRedirections = redirects
	return p.addresses(opt, "6379")
}

// addresses parses the list of hosts.
func (p *parts) addresses(opt *rueidis.ClientOption, port string) (err error) {
	opt.InitAddress, err = storeurl.Hosts(p.Host, port)
	return err
}

func database(opt *rueidis.ClientOption, db string) (err error) {
	if db == "" {
		return nil
	}
	if opt.SelectDB, err = strconv.Atoi(db); err != nil || opt.SelectDB < 0 {
		return errors.New("the database is not a number")
	}
	return nil
}

// tls reads the parameters for certificates. Without a servername each server's name is the dialled
// host.
func (p *parts) tls(opt *rueidis.ClientOption) error {
	p.known = append(p.known, storeurl.TLSParameters...)
	c, err := storeurl.TLSConfig(p.query)
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
		return fmt.Errorf("sentineltls=%s: it must be no, or left out", v)
	}
	return nil
}
