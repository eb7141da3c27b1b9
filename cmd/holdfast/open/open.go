// Package open finds the store that a URL means and opens it. It is the only place that
// knows all of them.
//
//	memory:                    this process alone, for trying things out
//	sqlite:PATH                a file, shared by the processes of this machine
//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]
//	rediss://...               the same over TLS
//	redis+unix://[USER:PASSWORD@]/PATH[?db=N]
//	                           the same over a Unix socket
//	redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST...]/MASTER[/DB][?sentineluser=U&sentinelpassword=P]
//	                           the primary that these sentinels name; rediss+sentinel:// over TLS, with
//	                           sentineltls=no to the servers only
//	redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST...]
//	                           a Redis Cluster; rediss+cluster:// over TLS
//	redis+quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][,HOST...][?quarantine=1m&prefix=hfq:]
//	                           a majority of 3 to 9 independent Redis servers; rediss+quorum:// over TLS
//	zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/ROOT][?session=10s&protocol=single&acl=private]
//	                           an ensemble; zk:// for short. ROOT is /holdfast if none is given, // is the top
//	zookeepers://...           the same over TLS; zks:// for short
//	mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?tls=true&timeout=5s&readTimeout=5s]
//	                           MySQL or MariaDB; mariadb:// is the same
//	mysql://USER[:PASSWORD]@/DATABASE?socket=PATH
//	                           the same over a Unix socket
//	postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST...][/DATABASE][?sslmode=verify-full&listen=URL]
//	                           PostgreSQL, with the parameters of libpq; postgresql:// is the same. listen is
//	                           another postgres URL, percent-encoded: a direct way, where the first leads
//	                           through a pooler
//
// The parameters of rediss and its kin, zookeepers and of mysql with tls=true: ca, a PEM file of roots to trust in
// place of the system's; cert and key, PEM files of a client certificate; servername, the name
// to expect in the server's certificate.
//
// An empty URL means one SQLite file per user, in the folder for programs' state.
package open

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Store is a store that has been opened.
type Store struct {
	driver.Backend

	// Place names the store for people and to compare: no credentials, and the same for two
	// URLs that lead to the same store in the same way. It is empty if no other process
	// can reach the store.
	Place string
}

// available are the schemes that Open knows.
const available = "memory:, sqlite:PATH, redis://, rediss://, redis+unix://, redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://, redis+quorum://, rediss+quorum://, zookeeper://, zookeepers://, mysql://, mariadb://, postgres://, postgresql://"

// schemes are all that dispatch knows.
var schemes = append([]string{
	"memory", "sqlite", "redis+quorum", "rediss+quorum", "zookeeper", "zk", "zookeepers", "zks",
	"mysql", "mariadb", "postgres", "postgresql",
}, redisSchemes...)

// later are schemes whose stores come with later versions.
var later = []string{
	"etcd", "etcds",
}

// Open opens the store that url means. The caller closes it. The text of errors has no
// password in it.
//
// Errors: driver.ErrInvalid (the URL makes no sense, or its store is not in this version),
// driver.ErrUnavailable, driver.ErrRefused, or ctx's when it ends first.
func Open(ctx context.Context, url string) (*Store, error) { return Via(ctx, url, nil) }

// Via is Open with every connection made by dial: those to servers that the store's client finds out
// about later, too, such as the primary that sentinels name. TLS is spoken inside of what dial returns. A
// store without connections (sqlite:, memory:) and a nil dial make it Open.
func Via(ctx context.Context, url string, dial Dialer) (*Store, error) {
	dial = unreached(dial)
	type result struct {
		s   *Store
		err error
	}
	opened := make(chan result, 1)
	go func() {
		s, err := dispatch(url, dial)
		opened <- result{s, err}
	}()
	select {
	case r := <-opened:
		return r.s, Redact(r.err, url)
	case <-ctx.Done():
		go func() { // openers are bounded, but take no context
			if r := <-opened; r.err == nil {
				_ = r.s.Close() // nobody waits for it any more
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func dispatch(url string, dial Dialer) (*Store, error) {
	if url == "" {
		path, err := defaultPath()
		if err != nil {
			return nil, err
		}
		return openSQLite(path)
	}
	scheme, rest, err := cutScheme(url)
	if err != nil {
		return nil, err
	}
	if slices.Contains(redisSchemes, scheme) {
		return openRedis(url, dial)
	}
	switch scheme {
	case "memory":
		if strings.Trim(rest, "/") != "" {
			return nil, invalid("nothing may follow memory:")
		}
		return &Store{Backend: memlock.New()}, nil
	case "sqlite":
		path, err := sqlitePath(rest)
		if err != nil {
			return nil, err
		}
		return openSQLite(path)
	case "redis+quorum", "rediss+quorum":
		return openQuorum(url, dial)
	case "zookeeper", "zk", "zookeepers", "zks":
		return openZooKeeper(url, dial)
	}
	p, err := sqlPoolOf(scheme, url, dial)
	if err != nil {
		return nil, err
	}
	return p.open(), nil
}

// cutScheme returns the scheme, which is one that dispatch knows, and what follows its colon.
func cutScheme(url string) (scheme, rest string, err error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || scheme == "" {
		return "", "", invalid("it has no scheme")
	}
	scheme = strings.ToLower(scheme)
	switch {
	case slices.Contains(schemes, scheme):
		return scheme, rest, nil
	case slices.Contains(later, scheme):
		return "", "", invalid("%s: is not in this version", scheme)
	case strings.ContainsFunc(scheme, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("+-.", r)
	}):
		return "", "", invalid("it has no scheme")
	}
	return "", "", invalid("the scheme %s: is unknown", scheme)
}

// invalid is the error for a URL that makes no sense. The URL itself is not part of it: a
// password could be anywhere in a URL that makes no sense.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w store URL: %s; there are %s", driver.ErrInvalid, fmt.Sprintf(format, args...), available)
}

// classify makes sure that an error of a store's opener has a sentinel.
func classify(err error, otherwise error) error {
	for _, e := range []error{driver.ErrInvalid, driver.ErrUnavailable, driver.ErrRefused, driver.ErrUncertain, driver.ErrClosed} {
		if errors.Is(err, e) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", otherwise, err)
}
