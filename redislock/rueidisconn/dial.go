package rueidisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Time limits of Dial's connections. A frozen server must not hang a caller.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
	pingEvery   = time.Second

	askSentinels = 5 * time.Second // for which server is the primary, in addition to their own messages
	redirects    = 16              // that one request follows, if the servers disagree about a slot
)

// Dial connects to the server, or servers, in a URL. Close closes the connections.
//
//	redis://[user:password@]host[:port][/db]
//	unix:///path?db=0     or redis+unix: a socket; [user:password@] may precede the path
//	redis+sentinel://[user:password@]host[:port][,host...]/master[/db]
//	                      the primary that these sentinels name; their default port is 26379
//	redis+cluster://[user:password@]host[:port][,host...]
//	                      a Cluster; some of its servers are enough
//	rediss://…, rediss+sentinel://…, rediss+cluster://…
//	                      the same over TLS, certificates checked against the system's roots
//
// With TLS the query parameters may have: ca, a PEM file of roots to trust instead; cert and key,
// PEM files of a client certificate; servername, the name in the servers' certificates if it is not
// the dialled host (sentinels and Clusters mostly name their servers by IP address).
//
// With sentinels they may have sentineluser and sentinelpassword, the sentinels' credentials. The
// user and password before the @ are the servers'. sentineltls=no with rediss+sentinel means that
// the sentinels do not use TLS.
//
// All URLs may have these parameters:
//
//	password-file=PATH    a file with the password, in place of a password in the URL. Each new
//	                      connection reads it; with sentinels it is read once. sentinelpassword-file
//	                      is the same for the sentinels' password, and is read once
//	dial-timeout=2s       for connecting to a server, TLS included; 100ms to 1m
//	read-timeout=3s       for an answer of a server, before the connection is given up; 100ms to 1m
//	pool-size=N           at most N connections wait for replicas at a time, 2 to 1024. Other
//	                      requests share one connection for each server, and have one for each
//	                      subscription
//
// A longer timeout keeps no lock for longer: the context of each call bounds it too. A password file
// has one line, and is refused if its path is relative, or if other users may read or write it.
//
// Errors: ErrInvalid if the URL or one of its files is invalid. ErrRefused if the server refuses
// the credentials, if either side refuses the other's certificate, if the sentinels do not know the
// master, or if the server does not fit the scheme. ErrUnavailable if the server cannot be reached, or
// is no Redis. No error shows a password.
func Dial(rawURL string) (redislock.Conn, error) {
	return DialContext(context.Background(), rawURL, nil)
}

// DialContext is Dial with a context and a Dialer. The end of ctx ends the attempt to connect; the
// error is then ErrUnavailable and the context's. It does not affect a Conn that DialContext has
// returned. dial makes every connection, including those to servers that sentinels or a Cluster name
// later. TLS, if the URL asks for it, runs inside these connections. A nil dial means Dial's own.
func DialContext(ctx context.Context, rawURL string, dial Dialer) (redislock.Conn, error) {
	set, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return dialWith(ctx, set, dial)
}

func dialWith(ctx context.Context, set settings, dial Dialer) (redislock.Conn, error) {
	opt := set.ClientOption
	if dial != nil {
		network := "tcp"
		if opt.DialCtxFn != nil { // only the URL of a socket sets it
			network = "unix"
		}
		opt.DialCtxFn = via(dial, network)
	}
	l := &connections{redials: opt.ForceSingleClient && opt.Sentinel.MasterSet == ""}
	l.through(&opt)
	where := "redis " + strings.Join(opt.InitAddress, ",")
	start := time.Now()
	goesOn := context.AfterFunc(ctx, l.cut)
	client, err := rueidis.NewClient(opt)
	if !goesOn() { // ctx has ended
		if err == nil {
			client.Close()
		}
		return nil, fmt.Errorf("%s: %w: %w", where, driver.ErrUnavailable, ctx.Err())
	}
	if errors.Is(err, context.DeadlineExceeded) { // the client's own limit
		return nil, fmt.Errorf("%s: %w after %v: %w", where, driver.ErrUnavailable,
			time.Since(start).Round(100*time.Millisecond), driver.NotCallers(err))
	}
	if err != nil {
		c := &conn{}
		if opt.Sentinel.MasterSet != "" {
			c.mode = rueidis.ClientModeSentinel
		}
		if !opt.ForceSingleClient {
			c.mode = rueidis.ClientModeCluster
		}
		if said := c.wrap(err); !errors.Is(said, driver.ErrUncertain) {
			return nil, fmt.Errorf("%s: %w", where, said)
		}
		// No request has been sent, so nothing is uncertain.
		return nil, fmt.Errorf("%s: %w: %w", where, driver.ErrUnavailable, err)
	}
	c := newConn(client, true)
	c.connections, c.watchers, c.ioTimeout = l, watchersOf(opt), opt.ConnWriteTimeout
	if set.pool > 0 {
		c.pool = make(chan struct{}, set.pool)
	}
	if !opt.ForceSingleClient && !c.Cluster() {
		return nil, errors.Join(fmt.Errorf("%w: %s does not belong to a Cluster", driver.ErrRefused, where), c.Close())
	}
	return c, nil
}

// options are the same for all URLs.
func options() rueidis.ClientOption {
	return rueidis.ClientOption{
		Dialer:            net.Dialer{Timeout: dialTimeout, KeepAlive: pingEvery},
		ConnWriteTimeout:  ioTimeout,
		ForceSingleClient: true,
		DisableRetry:      true, // package holdfast repeats requests
		DisableCache:      true,
		// A single connection keeps a cancellation behind the request that it cancels.
		PipelineMultiplex:   -1,
		BlockingPoolCleanup: time.Minute, // of RunWait, which may have needed many at once
		ReadBufferEachConn:  64 << 10,
		WriteBufferEachConn: 64 << 10,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
	}
}
