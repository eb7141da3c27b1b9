package rueidisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
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
	"redis+sentinel://[user:password@]host[:port][,host...]/master[/db] with sentineluser, sentinelpassword or sentinelpassword-file, sentineltls=no, " +
	"redis+cluster://[user:password@]host[:port][,host...], and rediss://, rediss+sentinel://, rediss+cluster:// with ca, cert, key, servername; " +
	"all with password-file=PATH in place of a password, dial-timeout=2s, read-timeout=3s and pool-size=N; " +
	"in Open and on the command line replicas=N and replica-timeout=500ms as well, and dialect=redisson with " +
	"mutex=fenced or fair, and semaphore=plain"

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
	"replica-timeout", "dialect", "mutex", "semaphore", storeurl.PasswordFile, sentinelPasswordFile,
	dialTimeoutParameter, readTimeoutParameter, poolSizeParameter}

// parts are the parts of a URL.
type parts struct {
	*url.URL
	query url.Values
	known []string // parameters that are allowed
}

// settings are what a URL says about the client.
type settings struct {
	rueidis.ClientOption
	pool int // see conn.pool; 0: no limit
}

// parse returns the settings of a URL.
func parse(rawURL string) (settings, error) { return parsePart(rawURL, rawURL, nil) }

// parsePart returns the settings of a URL that is part of whole: it lacks the parameters others.
func parsePart(rawURL, whole string, others []string) (settings, error) {
	s, err := read(rawURL, others)
	if err != nil {
		err = invalid(whole, cmp.Or(storeurl.AtAfterHosts(rawURL), err)) // a password with an @ may be valid
	}
	return s, err
}

// read is parsePart, with errors that quote nothing of the URL but its scheme and parameters without
// secrets.
func read(rawURL string, others []string) (settings, error) {
	s := settings{ClientOption: options()}
	u, query, err := storeurl.Parse(rawURL)
	if err != nil {
		return s, err
	}
	p := parts{URL: u, query: query}
	if p.User != nil {
		s.Username = p.User.Username()
		s.Password, _ = p.User.Password()
	}
	if err := cmp.Or(p.place(&s.ClientOption), p.tuning(&s)); err != nil {
		return s, err
	}
	return s, cmp.Or(p.unknown(others), p.passwordFile(&s.ClientOption))
}

// unknown returns an error for a parameter that is not allowed, or is given twice. others: what
// Open allows besides.
func (p *parts) unknown(others []string) error {
	for _, k := range slices.Sorted(maps.Keys(p.query)) {
		switch {
		case !slices.Contains(p.known, k):
			all := slices.Sorted(slices.Values(slices.Concat(p.known, others)))
			return fmt.Errorf("the parameter %q is unknown%s: this URL may have %s", k, meant(k, all), strings.Join(all, ", "))
		case len(p.query[k]) != 1:
			return fmt.Errorf("the parameter %q is given twice", k)
		}
	}
	return nil
}

// place reads where the servers are.
func (p *parts) place(opt *rueidis.ClientOption) (err error) {
	scheme, secure := p.Scheme, false
	if rest, ok := strings.CutPrefix(scheme, "rediss"); ok {
		scheme, secure = "redis"+rest, true
	}
	switch scheme {
	case "unix", "redis+unix":
		err = p.socket(opt)
	case "redis":
		err = p.server(opt)
	case "redis+sentinel":
		err = p.sentinels(opt)
	case "redis+cluster":
		err = p.cluster(opt)
	default:
		err = fmt.Errorf("scheme %q", p.Scheme)
	}
	if secure && scheme == "redis+unix" {
		err = fmt.Errorf("scheme %q", p.Scheme)
	}
	if err == nil && secure {
		err = p.tls(opt)
	}
	return err
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
	p.known = []string{"sentineluser", "sentinelpassword", sentinelPasswordFile}
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
	if file := p.query.Get(sentinelPasswordFile); file != "" {
		if opt.Sentinel.Password != "" {
			return errors.New("sentinelpassword and sentinelpassword-file contradict each other")
		}
		var err error
		if opt.Sentinel.Password, err = storeurl.ReadPassword(file); err != nil {
			return err
		}
	}
	if opt.Sentinel.Username != "" && opt.Sentinel.Password == "" {
		return errors.New("sentineluser needs sentinelpassword or sentinelpassword-file")
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
