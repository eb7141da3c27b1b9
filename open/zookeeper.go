package open

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/zklock"
)

// openZooKeeper opens the lock table of an ensemble. It does not connect yet: sessions do.
func openZooKeeper(rawURL string, dial Dialer) (*Store, error) {
	cfg, err := zooKeeperConfig(rawURL)
	if err != nil {
		return nil, err
	}
	cfg.Dialer = dial
	b, err := zklock.New(cfg)
	if err != nil {
		return nil, classify(err, driver.ErrInvalid)
	}
	return &Store{b, zooKeeperPlace(cfg)}, nil
}

// defaultRoot is where the locks are if the URL has no root, as in zklock.
const defaultRoot = "/holdfast"

// zooKeeperAllowed has no @ after a ://, or Scrub would mask the text between them.
const zooKeeperAllowed = "allowed are zookeeper://HOST[:PORT][,HOST...][/ROOT], USER:PASSWORD@ before the hosts, and the " +
	"parameters password-file=PATH, session=DURATION, protocol=ordered or single, acl=readable or private; with zookeepers:// also ca, cert, key, servername"

// invalidZooKeeper is a refusal.
func invalidZooKeeper(format string, args ...any) error {
	return fmt.Errorf("%w zookeeper URL: %s; %s", driver.ErrInvalid, fmt.Sprintf(format, args...), zooKeeperAllowed)
}

// zooKeeperConfig parses a URL.
func zooKeeperConfig(rawURL string) (cfg zklock.Config, err error) {
	u, query, err := serverURL(rawURL, invalidZooKeeper, "zookeeper", "zk", "zookeepers", "zks")
	if err != nil {
		return cfg, err
	}
	if strings.Contains(u.EscapedPath(), ",") {
		return cfg, invalidZooKeeper("there is a comma in the root, which follows the last server (%%2C if it is part of it)")
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
	// Read once: nodes belong to the password that created them, so a new one is another user.
	if _, cfg.Password, err = passwordFileOf(query, cfg.Password, invalidZooKeeper); err != nil {
		return cfg, err
	}
	if cfg.Password != "" && cfg.User == "" {
		return cfg, invalidZooKeeper("password-file needs USER@")
	}
	if cfg.Servers, err = storeurl.Hosts(u.Host, zooKeeperPort); err != nil {
		return cfg, invalidZooKeeper("%v", err)
	}
	switch cfg.Root = u.Path; cfg.Root {
	case "", "/": // a slash at the end changes nothing
		cfg.Root = defaultRoot
	case "//":
		cfg.Root = "/"
	}
	if err := settings(&cfg, query); err != nil {
		return cfg, err
	}
	if u.Scheme == "zookeepers" || u.Scheme == "zks" { // package url has made it lower case
		if cfg.TLS, err = storeurl.TLSConfig(query); err != nil {
			return cfg, invalidZooKeeper("%v", err)
		}
	}
	for _, k := range storeurl.TLSParameters {
		if query.Has(k) && cfg.TLS == nil {
			return cfg, invalidZooKeeper("the parameter %s is for zookeepers://", k)
		}
	}
	return cfg, nil
}

// settings reads the parameters that are not about TLS, and refuses unknown ones.
func settings(cfg *zklock.Config, query url.Values) error {
	known := append([]string{"session", "protocol", "acl", storeurl.PasswordFile}, storeurl.TLSParameters...)
	if err := onlyKnown(query, invalidZooKeeper, known...); err != nil {
		return err
	}
	if s := query.Get("session"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < driver.MinTTL || d > driver.MaxTTL {
			return invalidZooKeeper("session=%s: it must be a time with its unit, such as 10s, from %v to %v", s, driver.MinTTL,
				driver.MaxTTL)
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
	switch a := query.Get("acl"); a {
	case "":
	case "readable":
		cfg.Access = zklock.Readable
	case "private":
		cfg.Access = zklock.Private
	default:
		return invalidZooKeeper("acl=%s: it must be readable or private, or left out, which lets everybody in", a)
	}
	if cfg.Access != zklock.Everybody && cfg.User == "" {
		return invalidZooKeeper("acl=%s needs USER:PASSWORD@", query.Get("acl"))
	}
	return nil
}

const zooKeeperPort = "2181"

// zooKeeperPlace names the lock table, with its servers sorted.
func zooKeeperPlace(cfg zklock.Config) string {
	place := "zookeeper:" + strings.Join(slices.Sorted(slices.Values(cfg.Servers)), ",") + cfg.Root
	if cfg.Protocol == zklock.Single { // locks of the two protocols ignore each other
		place += "#single"
	}
	return place
}
