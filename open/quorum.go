package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// quorums maps the schemes of quorums to those of their servers.
var quorums = map[string]string{"redis+quorum": "redis", "rediss+quorum": "rediss"}

// openQuorum opens the lock table of a quorum. It connects to no server yet.
func openQuorum(rawURL string, dial Dialer) (*Store, error) {
	q, err := quorumOf(rawURL, dial)
	if err != nil {
		return nil, err
	}
	return &Store{quorum.New(q.servers, &q.cfg), q.place}, nil
}

// initQuorum declares the quorum of a URL new.
func initQuorum(ctx context.Context, rawURL string) (place string, err error) {
	q, err := quorumOf(rawURL, nil)
	if err != nil {
		return "", err
	}
	b := quorum.New(q.servers, &q.cfg)
	err = b.Declare(ctx)
	return q.place, errors.Join(err, b.Close())
}

// quorumURL is a parsed URL.
type quorumURL struct {
	servers []quorum.Server
	cfg     quorum.Config
	place   string
}

// quorumAllowed has no @ after a ://, or Scrub would mask the text between them.
const quorumAllowed = "allowed are redis+quorum://HOST[:PORT],HOST[:PORT],HOST[:PORT][,...] with 3 to 9 servers, USER:PASSWORD@ before them, " +
	"and the parameters quarantine=DURATION, prefix=TEXT, password-file=PATH, dial-timeout=2s, read-timeout=3s; with rediss+quorum:// also ca, cert, key, servername"

// invalidQuorum is a refusal.
func invalidQuorum(format string, args ...any) error {
	return fmt.Errorf("%w quorum URL: %s; %s", driver.ErrInvalid, fmt.Sprintf(format, args...), quorumAllowed)
}

// quorumOf parses a URL. All servers have the same credentials and certificates.
func quorumOf(rawURL string, dial Dialer) (q quorumURL, err error) {
	u, query, err := serverURL(rawURL, invalidQuorum, "redis+quorum", "rediss+quorum")
	if err != nil {
		return q, err
	}
	scheme := quorums[u.Scheme] // package url has made it lower case
	ofServers := []string{storeurl.PasswordFile, "dial-timeout", "read-timeout"}
	if scheme == "rediss" {
		ofServers = append(ofServers, storeurl.TLSParameters...)
	}
	if err := onlyKnown(query, invalidQuorum, append(ofServers, "quarantine", "prefix")...); err != nil {
		return q, err
	}
	password, _ := u.User.Password()
	if _, _, err := passwordFileOf(query, password, invalidQuorum); err != nil {
		return q, err
	}
	passed := url.Values{}
	for _, k := range ofServers {
		if query.Has(k) {
			passed[k] = query[k]
		}
	}
	if s := query.Get("quarantine"); s != "" {
		if q.cfg.Quarantine, err = time.ParseDuration(s); err != nil || q.cfg.Quarantine < driver.MinTTL ||
			q.cfg.Quarantine > driver.MaxTTL {
			return q, invalidQuorum("quarantine=%s: it must be a time with its unit, such as 1m, from %v to %v", s,
				driver.MinTTL, driver.MaxTTL)
		}
	}
	q.cfg.Prefix = query.Get("prefix")
	if number(u.Path) != "0" {
		return q, invalidQuorum("a quorum uses database 0 of its servers; use prefix=TEXT to separate quorums")
	}
	var names []string
	for i, h := range strings.Split(u.Host, ",") {
		addr, err := storeurl.HostPort(h, "6379")
		if err != nil {
			return q, invalidQuorum("server %d: %v", i+1, err)
		}
		if slices.Contains(names, addr) {
			return q, invalidQuorum("server %d is given twice", i+1)
		}
		names = append(names, addr)
		one := (&url.URL{Scheme: scheme, User: u.User, Host: addr, RawQuery: passed.Encode()}).String()
		q.servers = append(q.servers, quorum.Server{Name: addr,
			Dial: func(ctx context.Context) (redislock.Conn, error) { return rueidisconn.DialContext(ctx, one, dial) }})
	}
	if n := len(names); n < quorum.MinServers || n > quorum.MaxServers {
		return q, invalidQuorum("there are %d servers", n)
	}
	prefix := q.cfg.Prefix
	if prefix == "" {
		prefix = quorum.DefaultPrefix
	}
	if err := redislock.CheckMember(prefix, quorum.DefaultQuarantine); err != nil {
		return q, invalidQuorum("prefix=%s: allowed are letters, digits and . : _ -", prefix)
	}
	q.place = "redis-quorum:" + strings.Join(slices.Sorted(slices.Values(names)), ",") + "#" + prefix
	return q, nil
}
