// Package open opens the store that a URL names, for programs that take it from their
// configuration. It links the client libraries of all stores; a program that always uses one store
// imports that store's package instead, and links less.
//
//	memory:                    this process only, for trials
//	sqlite:PATH                a file, shared by the processes of this machine; its folder exists
//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]
//	rediss://...               the same over TLS
//	redis+unix://[USER:PASSWORD@]/PATH[?db=N]
//	                           the same over a Unix socket
//	redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST...]/MASTER[/DB]
//	                           the primary that these sentinels name; rediss+sentinel:// over TLS.
//	                           ?sentineluser=U&sentinelpassword=P is for the sentinels;
//	                           sentineltls=no: TLS to the servers only
//	redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST...]
//	                           a Redis Cluster; rediss+cluster:// over TLS
//	redis+quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT][,HOST...]
//	                           a majority of 3 to 9 independent Redis servers, with
//	                           ?quarantine=1m&prefix=hfq:; rediss+quorum:// over TLS
//	valkey://..., valkeys://...
//	                           the same as redis: and rediss:, also in valkey+sentinel and so on
//	zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/ROOT]
//	                           an ensemble, with ?session=10s&protocol=single&acl=private; zk://
//	                           for short. ROOT is /holdfast if none is given; // is the top
//	zookeepers://...           the same over TLS; zks:// for short
//	mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?tls=true&timeout=5s&readTimeout=5s]
//	                           MySQL or MariaDB; mariadb:// is the same
//	mysql://USER[:PASSWORD]@/DATABASE?socket=PATH
//	                           the same over a Unix socket
//	postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST...][/DATABASE][?sslmode=verify-full&listen=URL]
//	                           PostgreSQL, with the parameters of libpq; postgresql:// is the
//	                           same. listen is another postgres URL, percent-encoded: a direct
//	                           connection if the first URL leads through a pooler
//
// Every URL that may have a password may have password-file=PATH in its place, a file with one line
// that no other user may read. Each new connection reads it, so that it can be changed; ZooKeeper,
// and Redis with sentinels, read it when the store is opened. The sentinels have
// sentinelpassword-file.
//
// Redis has dial-timeout=2s for connecting and read-timeout=3s for an answer, and with replicas=N
// also pool-size=N: how many connections wait for replicas at most.
//
// Every redis scheme but redis+quorum may have dialect=redisson: the locks are those of Redisson, a
// library for Java, with mutex=fenced or mutex=fair for its RFencedLock or RFairLock, and semaphore=plain for
// its RSemaphore. See package redisson.
//
// All rediss schemes, zookeepers, and mysql with tls=true have these parameters: ca, a PEM file of
// roots to trust in place of the system's; cert and key, PEM files of a client certificate;
// servername, the name to expect in the certificate of the server.
//
// An empty URL means one SQLite file for each user, in the user's folder for the state of programs.
package open

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Store is a store that has been opened.
type Store struct {
	driver.Backend

	// Place names the store, for people and for comparison. It has no credentials, and is the same
	// for two URLs that lead to the same store in the same way. It is empty if no other process can
	// reach the store.
	Place string
}

// KeepLeases makes the locks of clients that are opened from now on last until their leases end,
// also if this process is killed and the store notices that at once, as the embedded store does. It
// is for a process whose leases others trust.
func (s *Store) KeepLeases() {
	if k, ok := s.Backend.(interface{ KeepLeases() }); ok {
		k.KeepLeases()
	}
}

// Presence returns files that show other processes that this one is alive, if the store has such files, as the
// embedded store does: see Backend.Presence of package sqlite. The caller closes them.
func (s *Store) Presence() ([]*os.File, error) {
	if p, ok := s.Backend.(interface{ Presence() ([]*os.File, error) }); ok {
		return p.Presence()
	}
	return nil, nil
}

// Pause lets no request to the store begin until resume is called, if a process that stops within one
// would keep others from the store, as with the embedded store: see Backend.Pause of package sqlite.
func (s *Store) Pause(ctx context.Context) (resume func(), err error) {
	if p, ok := s.Backend.(interface {
		Pause(ctx context.Context) (resume func(), err error)
	}); ok {
		return p.Pause(ctx)
	}
	return func() {}, nil
}

// Watch implements driver.Watcher, if the store does.
func (s *Store) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	return driver.Watch(ctx, s.Backend, prefix, changed)
}

// Neighbors implements driver.Neighbor, if the store does; other stores have none.
func (s *Store) Neighbors(ctx context.Context, name string) ([]string, error) {
	if n, ok := s.Backend.(driver.Neighbor); ok {
		return n.Neighbors(ctx, name)
	}
	return nil, nil
}

// available are the schemes that Open knows, without their variants over TLS.
const available = "sqlite:PATH, redis://, redis+sentinel://, redis+cluster://, redis+quorum://, redis+unix://, " +
	"zookeeper://, mysql://, mariadb://, postgres:// and memory:"

// similar are schemes that other programs use, by ours; ports are those that servers have by default.
var (
	similar = map[string]string{
		"pg": "postgres", "pgx": "postgres", "psql": "postgres", "pgsql": "postgres", "postgre": "postgres",
		"mysqlx": "mysql", "maria": "mariadb", "zoo": "zookeeper", "file": "sqlite", "sqlite3": "sqlite", "mem": "memory",
		"redis-sentinel": "redis+sentinel", "sentinel": "redis+sentinel", "redis-cluster": "redis+cluster",
		"redsi": "redis", "reddis": "redis", "redis-tls": "rediss", "postgress": "postgres", "postgressql": "postgres",
		"mysqls": "mysql", "zookeper": "zookeeper", "sqllite": "sqlite", "sqlite2": "sqlite",
		"redis-socket": "redis+unix", "redis-quorum": "redis+quorum", "redlock": "redis+quorum",
	}
	ports = map[string]string{
		"6379": "redis", "26379": "redis+sentinel", "2181": "zookeeper", "3306": "mysql", "5432": "postgres",
	}
)

// schemes are all that dispatch knows.
var schemes = append([]string{
	"memory", "sqlite", "redis+quorum", "rediss+quorum", "zookeeper", "zk", "zookeepers", "zks",
	"mysql", "mariadb", "postgres", "postgresql",
}, redisSchemes...)

// later are the schemes of stores that later versions will have.
var later = []string{
	"etcd", "etcds",
}

// Open opens the store that url names. The caller closes it. No error text has a password in it.
//
// Errors: driver.ErrInvalid (the URL is invalid, or its store is not in this version),
// driver.ErrUnavailable, driver.ErrRefused, or the cause of ctx if ctx ends first.
func Open(ctx context.Context, url string) (*Store, error) { return Via(ctx, url, nil) }

// Via is Open with dial for every connection, also to servers that the client of the store finds
// later, such as the primary that sentinels name. TLS runs inside the connections that dial
// returns. Via is the same as Open if dial is nil, or if the store has no connections (sqlite:,
// memory:).
func Via(ctx context.Context, url string, dial Dialer) (*Store, error) {
	dial = withOpErrors(dial)
	type result struct {
		s   *Store
		err error
	}
	opened := make(chan result, 1)
	go func() {
		s, err := dispatch(asRedis(url), dial)
		opened <- result{s, err}
	}()
	select {
	case r := <-opened:
		return r.s, Redact(r.err, url)
	case <-ctx.Done():
		go func() { // openers are bounded, but take no context
			if r := <-opened; r.err == nil {
				_ = r.s.Close() // the caller has given up
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
	if err := slashes(url, scheme, rest); err != nil {
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
		if err == nil {
			err = hasFolder(path)
		}
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

// cutScheme returns the scheme, which dispatch knows, and the text after its colon.
func cutScheme(url string) (scheme, rest string, err error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok && (scheme == "localhost" || scheme == "127.0.0.1") {
		return "", "", invalid("it has no scheme; did you mean redis://%s:6379?", scheme)
	}
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
	if store, colon := similar[scheme], ":"; store != "" {
		if store != "sqlite" && store != "memory" {
			colon = "://"
		}
		return "", "", invalid("the scheme %s: is unknown; did you mean %s%s?", scheme, store, colon)
	}
	port, _, _ := strings.Cut(rest, "/")
	if store := ports[port]; store != "" { // HOST:PORT
		return "", "", invalid("it has no scheme; did you mean %s://%s:%s?", store, scheme, port)
	}
	return "", "", invalid("the scheme %s: is unknown", scheme)
}

// slashes refuses a URL of servers without its //, with the URL that was most likely meant.
func slashes(url, scheme, rest string) error {
	if scheme == "memory" || scheme == "sqlite" || strings.HasPrefix(rest, "//") {
		return nil
	}
	said := "it has no // after the scheme"
	if hosts := strings.TrimLeft(rest, "/"); plain().MatchString(hosts) && scheme != "unix" && scheme != "redis+unix" {
		return invalid("%s; did you mean %s://%s?", said, url[:len(scheme)], hosts)
	}
	return invalid("%s, as in %s://%s", said, url[:len(scheme)], usual[scheme])
}

// usual are the shortest URLs of the schemes that have servers, after the //.
var usual = map[string]string{
	"redis": "localhost:6379", "rediss": "localhost:6379", "redis+unix": "/run/redis.sock", "unix": "/run/redis.sock",
	"redis+sentinel": "localhost:26379/mymaster", "rediss+sentinel": "localhost:26379/mymaster",
	"redis+cluster": "localhost:6379", "rediss+cluster": "localhost:6379",
	"redis+quorum": "r1,r2,r3", "rediss+quorum": "r1,r2,r3",
	"zookeeper": "localhost:2181", "zk": "localhost:2181", "zookeepers": "localhost:2281", "zks": "localhost:2281",
	"mysql": "root@localhost/locks", "mariadb": "root@localhost/locks",
	"postgres": "localhost/locks", "postgresql": "localhost/locks",
}

// plain matches hosts with ports, and a path: no part of it can be a password.
var plain = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[\w.-]+(:\d{1,5})?(,[\w.-]+(:\d{1,5})?)*(/[\w./-]*)?$`)
})

// asRedis returns a URL of Valkey as one of Redis, whose protocol it speaks.
func asRedis(url string) string {
	scheme, rest, ok := strings.Cut(url, ":")
	kind, is := strings.CutPrefix(strings.ToLower(scheme), "valkey")
	if ok && is && slices.Contains(schemes, "redis"+kind) {
		return "redis" + kind + ":" + rest
	}
	return url
}

// invalid returns the error for an invalid URL. It does not quote the URL: a password could be
// anywhere in an invalid URL.
func invalid(format string, args ...any) error {
	said := fmt.Sprintf(format, args...)
	if strings.HasSuffix(said, "?") || strings.Contains(said, ", as in ") { // this says more than the list
		return fmt.Errorf("%w store URL: %s", driver.ErrInvalid, said)
	}
	return fmt.Errorf("%w store URL: %s; allowed are %s", driver.ErrInvalid, said, available)
}

// classify returns err, wrapped in otherwise if it has none of the driver's errors.
func classify(err error, otherwise error) error {
	for _, e := range []error{driver.ErrInvalid, driver.ErrUnavailable, driver.ErrRefused, driver.ErrUncertain,
		driver.ErrClosed} {
		if errors.Is(err, e) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", otherwise, err)
}
