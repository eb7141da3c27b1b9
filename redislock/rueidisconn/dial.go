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

// What Dial's connections wait for at most. A frozen server must not hang anybody.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
	pingEvery   = time.Second

	askSentinels = 5 * time.Second // which server is the primary, beside what they say by themselves
	redirects    = 16              // that one request follows, where the servers do not agree who has a slot
)

// Dial connects to the server, or servers, that a URL names. Close closes the connections.
//
//	redis://[user:password@]host[:port][/db]
//	unix:///path?db=0     or redis+unix: a socket; [user:password@] may stand before the path
//	redis+sentinel://[user:password@]host[:port][,host...]/master[/db]
//	                      the primary that these sentinels name, whichever it is; their port is 26379
//	redis+cluster://[user:password@]host[:port][,host...]
//	                      a Cluster; some of its servers are enough
//	rediss://…, rediss+sentinel://…, rediss+cluster://…
//	                      the same over TLS, certificates checked against the system's roots
//
// Options of the three with TLS, as query parameters: ca, a PEM file of roots to trust instead; cert and
// key, PEM files of a client certificate; servername, the name to expect in the servers'
// certificates if it is not the host that is dialled (sentinels and Clusters mostly name their servers by IP address).
//
// Options for sentinels: sentineluser and sentinelpassword, if they want credentials; user and
// password before the @ are the servers'. sentineltls=no with rediss+sentinel: the sentinels speak no TLS.
//
// Errors: ErrInvalid if the URL or a file it names makes no sense, ErrRefused if the
// server does not accept the credentials or either side the other's certificate, if the sentinels do not
// know the master, or if the server is not what the scheme says,
// ErrUnavailable or ErrUncertain if it cannot be reached. No error shows a password.
func Dial(rawURL string) (redislock.Conn, error) { return DialVia(rawURL, nil) }

// DialVia is Dial with every connection made by dial: those to servers that sentinels or a Cluster name
// later, too. TLS, where the URL asks for it, is spoken inside. A nil dial is Dial's own.
func DialVia(rawURL string, dial Dialer) (redislock.Conn, error) {
	opt, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	if dial != nil {
		network := "tcp"
		if opt.DialCtxFn != nil { // only a socket's URL sets it
			network = "unix"
		}
		opt.DialCtxFn = via(dial, network)
	}
	var l *lines
	if opt.ForceSingleClient && opt.Sentinel.MasterSet == "" {
		l = new(lines)
		l.through(&opt)
	}
	where := "redis " + strings.Join(opt.InitAddress, ",")
	start := time.Now()
	client, err := rueidis.NewClient(opt)
	if errors.Is(err, context.DeadlineExceeded) { // of the client's own limit
		return nil, fmt.Errorf("%s: %w after %v: %w", where, driver.ErrUnavailable, time.Since(start).Round(100*time.Millisecond), driver.NotCallers(err))
	}
	if err != nil {
		c := &conn{}
		if opt.Sentinel.MasterSet != "" {
			c.mode = rueidis.ClientModeSentinel
		}
		if !opt.ForceSingleClient {
			c.mode = rueidis.ClientModeCluster
		}
		return nil, fmt.Errorf("%s: %w", where, c.wrap(err))
	}
	c := newConn(client, true)
	c.lines, c.watchers = l, watchersOf(opt)
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
		DisableRetry:      true, // package holdfast asks again itself
		DisableCache:      true,
		// One connection keeps a cancellation behind the request that it cancels.
		PipelineMultiplex:   -1,
		BlockingPoolCleanup: time.Minute, // of RunWait, of which there may have been many at once
		ReadBufferEachConn:  64 << 10,
		WriteBufferEachConn: 64 << 10,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
	}
}
